# SPDX-License-Identifier: Apache-2.0
"""Where a LeRobot dataset keeps what: `meta/info.json`, its path templates, and the tables of episodes and frames."""

from __future__ import annotations

import functools
import json
import math
import operator
import os
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import daft
import daft.datasets.lerobot as daft_lerobot
from daft import DataFrame, DataType, Expression, col, lit
from daft.exceptions import DaftCoreException
from daft.functions import lpad, video_file, when
from daft.io import IOConfig

DeltaTimestamps = Mapping[str, Sequence[float]]

SHARD_COLUMNS = ("video", "from_timestamp", "to_timestamp")
"""What follows `videos/{key}/` in the names of a camera's shard, offset and end."""

_DATA_PATH = {
    2: "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
    3: "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
}
_VIDEO_PATH = {
    2: "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    3: "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
}
_EPISODES_PER_CHUNK = 1000  # where info.json does not tell
_DELTA_TOLERANCE_S = 1e-4  # LeRobot's own: how far a delta may be from a multiple of the frame interval
_ROW_COLUMNS = ("episode_index", "frame_index", "timestamp")  # by these a row's neighbours and frames are found


@dataclass(frozen=True)
class LeRobotDataset:
    """One dataset, of which no more than `meta/info.json` has been read.

    Args:
        root: Its folder or URL, without a slash at the end.
        io_config: How remote files are read.
        info: The parsed `meta/info.json`.
        version: The major one, 2 or 3.
    """

    root: str
    io_config: IOConfig | None
    info: dict[str, Any]
    version: int

    @classmethod
    def open(cls, uri: str | os.PathLike[str], io_config: IOConfig | None) -> LeRobotDataset:
        """Read `meta/info.json`, and nothing else."""
        root = dataset_root(uri)
        url = f"{root}/meta/info.json"
        hint = f"; {uri!r} is no folder here, so it was taken for a dataset of the Hugging Face hub"
        hint = hint if root.startswith("hf://") and not os.fspath(uri).strip().startswith("hf://") else ""
        try:
            with daft.open_file(url, io_config=io_config) as file:
                found = json.load(file)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"no LeRobot dataset at {root}: there is no {url}{hint}") from error
        except DaftCoreException as error:
            error.add_note(f"while reading {url}{hint}")
            raise
        except ValueError as error:
            raise ValueError(f"{url} is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise ValueError(f"{url} is not a JSON object, but {type(found).__name__}")  # noqa: TRY004 - as what is not JSON
        codebase_version = found.get("codebase_version")
        version = re.fullmatch(r"v([23])(\.\d+)*", str(codebase_version).strip())
        if version is None:
            raise ValueError(f"{url}: codebase_version is {codebase_version!r}; v2.0, v2.1 and v3.x are supported")
        return cls(root, io_config, found, int(version[1]))

    @functools.cached_property
    def features(self) -> dict[str, dict[str, Any]]:
        """What each column of the data is, by its key."""
        return dict(self.info.get("features") or {})

    @property
    def videos(self) -> list[str]:
        """Keys of the cameras that have video files."""
        return [key for key, feature in self.features.items() if feature["dtype"] == "video"]

    @property
    def images(self) -> list[str]:
        """Keys of the cameras whose images lie in the data files."""
        return [key for key, feature in self.features.items() if feature["dtype"] == "image"]

    @property
    def cameras(self) -> list[str]:
        """Keys of all cameras."""
        return [key for key, feature in self.features.items() if feature["dtype"] in ("video", "image")]

    @property
    def fps(self) -> float:
        """Frames a second."""
        fps = self.info.get("fps")
        if not isinstance(fps, (int, float)) or not fps > 0:
            raise ValueError(f"{self.root}/meta/info.json: fps is {fps!r}; it must be a number above 0")
        return float(fps)

    def chosen_cameras(self, load_video_frames: object) -> list[str]:
        """The cameras that an argument names: True, False, a key or keys."""
        if isinstance(load_video_frames, bool):
            return self.cameras if load_video_frames else []
        keys = [load_video_frames] if isinstance(load_video_frames, str) else load_video_frames
        if not isinstance(keys, (list, tuple)) or not all(isinstance(key, str) for key in keys):
            raise TypeError(f"load_video_frames must be True, False, or keys of cameras, not {load_video_frames!r}")
        for key in keys:
            if key not in self.cameras:
                raise ValueError(
                    f"load_video_frames: {key!r} is no camera of {self.root}; it has {listed(self.cameras)}"
                )
        return list(keys)

    def chosen_videos(self, cameras: Sequence[str] | None) -> list[str]:
        """The cameras with video files that an argument names; None: all."""
        if cameras is None:
            return self.videos
        if isinstance(cameras, str) or not all(isinstance(key, str) for key in cameras):
            raise TypeError(f"cameras must be a list of keys, not {cameras!r}")
        for key in cameras:
            if key not in self.videos:
                raise ValueError(f"cameras: {key!r} has no videos in {self.root}; those with are {listed(self.videos)}")
        return list(dict.fromkeys(cameras))

    def frame_steps(self, delta_timestamps: DeltaTimestamps) -> dict[str, list[int]]:
        """The deltas of each key in frames."""
        if not isinstance(delta_timestamps, Mapping):
            raise TypeError(f"delta_timestamps must be a dict of lists of seconds, not {delta_timestamps!r}")
        return {key: self._steps(key, deltas) for key, deltas in delta_timestamps.items()}

    def _steps(self, key: str, deltas_s: Sequence[float]) -> list[int]:
        if key not in self.features:
            raise ValueError(f"delta_timestamps: {key!r} is no feature of {self.root}; it has {listed(self.features)}")
        if key in _ROW_COLUMNS:
            raise ValueError(f"delta_timestamps: {key!r} tells the row itself; windows of it are not supported")
        try:
            seconds = [float(delta) for delta in deltas_s]
        except (TypeError, ValueError) as error:
            raise TypeError(f"delta_timestamps[{key!r}] must be a list of seconds, not {deltas_s!r}") from error
        if not seconds:
            raise ValueError(f"delta_timestamps[{key!r}] is empty")
        for delta_s in seconds:
            if not math.isfinite(delta_s) or abs(round(delta_s * self.fps) / self.fps - delta_s) > _DELTA_TOLERANCE_S:
                raise ValueError(
                    f"delta_timestamps[{key!r}]: {delta_s} s is not a multiple of the frame interval 1/{self.fps:g} s"
                )
        return [round(delta_s * self.fps) for delta_s in seconds]

    def episodes(self, *, include_meta: bool, include_stats: bool, include_video_metadata: bool) -> DataFrame:
        """Daft's table of the episodes, with the shards of this dataset's own path template and their ends."""
        try:
            episodes = daft_lerobot.read_episodes(
                self.root,
                io_config=self.io_config,
                include_meta=include_meta,
                include_stats=include_stats,
                include_video_metadata=True,
            )
        except DaftCoreException as error:
            columns = [f"videos/{key}/{name}" for key in self.videos for name in ("chunk_index", "file_index")]
            missing = next((name for name in columns if name in str(error)), None)
            if missing is None:
                raise
            raise ValueError(
                f"the episodes of {self.root} have no column {missing!r}, which tells the shard"
            ) from error
        for key in self.videos:
            begin, end = f"videos/{key}/from_timestamp", f"videos/{key}/to_timestamp"
            require_number(episodes, begin, f"the episodes of {self.root}", "tells where each begins in its shard")
            episodes = episodes.with_column(f"videos/{key}/video", self._shard(episodes, key))
            if end not in episodes.column_names and "length" in episodes.column_names:
                episodes = episodes.with_column(end, col(begin) + col("length") / self.fps)
        if include_video_metadata:
            return episodes
        names = episodes.column_names
        return episodes.exclude(*(name for name in names if name.startswith("videos/") and not name.endswith("/video")))

    def _shard(self, episodes: DataFrame, key: str) -> Expression:
        """The video file of each episode."""
        template = self.info.get("video_path") or _VIDEO_PATH[self.version]
        chunk = col("episode_index") // lit(int(self.info.get("chunks_size") or _EPISODES_PER_CHUNK))
        numbers = {"episode_index": col("episode_index"), "episode_chunk": chunk, "chunk_index": chunk}
        for name in ("chunk_index", "file_index"):
            if f"videos/{key}/{name}" in episodes.column_names:
                numbers[name] = col(f"videos/{key}/{name}")
        parts = [lit(f"{self.root}/")]
        for text, field, form, _ in _parse(template):
            parts.append(lit(text))
            if field == "video_key":
                parts.append(lit(key))
            elif field in numbers:
                parts.append(_formatted(numbers[field], form or "", template))
            elif field is not None:
                raise ValueError(
                    f"{self.root}/meta/info.json: video_path {template!r} has the unknown field {{{field}}}; "
                    f"known are video_key, {', '.join(numbers)}"
                )
        path: Expression = functools.reduce(operator.add, parts)
        shard: Expression = video_file(path, verify=False, io_config=self.io_config)
        return shard

    def frames(self) -> DataFrame:
        """The rows of all data files."""
        template = self.info.get("data_path") or _DATA_PATH[self.version]
        pattern = "".join(text + ("" if field is None else "*") for text, field, _, _ in _parse(template))
        return daft.read_parquet(f"{self.root}/{pattern}", io_config=self.io_config)

    def join(self, episodes: DataFrame, frames: DataFrame) -> DataFrame:
        """Rows with the metadata of their episodes."""
        require_number(episodes, "episode_index", "episodes", "joins episodes and their frames")
        require_number(frames, "episode_index", f"the data of {self.root}", "joins episodes and their frames")
        return episodes.join(frames, on=["episode_index"]).exclude("data/chunk_index", "data/file_index")

    def picture_size(self, key: str) -> tuple[int, int]:
        """Height and width of a camera's pictures, as info.json tells."""
        feature = self.features[key]
        names, shape = feature.get("names"), feature.get("shape")
        if isinstance(names, list) and isinstance(shape, list) and {"height", "width"} <= set(names):
            return shape[names.index("height")], shape[names.index("width")]
        raise ValueError(f"{self.root}/meta/info.json does not tell the size of {key!r}: give height and width")


def require(table: DataFrame, column: str, where: str, purpose: str) -> None:
    """Refuse a table that lacks a column."""
    if column not in table.column_names:
        raise ValueError(
            f"{where}: there is no column {column!r}, which {purpose}; there are {listed(table.column_names)}"
        )


def require_number(table: DataFrame, column: str, where: str, purpose: str) -> None:
    """Refuse a table whose column is missing or is no number."""
    require(table, column, where, purpose)
    kind = table.schema()[column].dtype
    if not kind.is_numeric():
        raise TypeError(f"{where}: column {column!r}, which {purpose}, must be numeric, but is {kind}")


def dataset_root(uri: str | os.PathLike[str]) -> str:
    """The dataset's folder or URL: a folder that exists, a name of the hub, or whatever it says."""
    name = os.fspath(uri).strip()
    if Path(name).is_dir():
        return str(Path(name).absolute())
    return f"hf://datasets/{name}" if _is_hub_name(name) else name.rstrip("/")


def _is_hub_name(uri: str | os.PathLike[str]) -> bool:
    return re.fullmatch(r"[\w.-]+/[\w.-]+", os.fspath(uri).strip()) is not None


def _parse(template: str) -> list[tuple[str, str | None, str | None, str | None]]:
    """Text, field and format of a path template, in Python's own syntax."""
    return list(string.Formatter().parse(template))


def _formatted(number: Expression, form: str, template: str) -> Expression:
    """A number as `format` writes it: filled up with zeros, and never cut."""
    parsed = re.fullmatch(r"(?:0(\d+))?d?", form)
    if parsed is None:
        raise ValueError(f"video_path {template!r}: format {form!r} is not supported; 'd' and '03d' are")
    digits = number.cast(DataType.int64()).cast(DataType.string())
    width = int(parsed[1] or 0)
    return when(number < 10**width, lpad(digits, width, "0")).otherwise(digits) if width else digits


def listed(names: Iterable[str]) -> str:
    """Names for an error message."""
    return ", ".join(map(repr, names)) or "none"
