# SPDX-License-Identifier: Apache-2.0
"""Whether the videos of a LeRobot dataset are what its tables tell."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import daft
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from daft import DataFrame, DataType, Series, col
from daft.functions import video_file

from daft_sparsevideo.batch import shard_sources
from daft_sparsevideo.dataset_layout import LeRobotDataset, require, require_number
from daft_sparsevideo.dataset_reencoding import INFO_KEY
from daft_sparsevideo.dataset_shards import DatasetShard, dataset_shards
from daft_sparsevideo.errors import SparseVideoError
from daft_sparsevideo.gate import closure_sizes
from daft_sparsevideo.open_shards import OpenShard, ShardSource, open_anew
from daft_sparsevideo.output_file import PARTIAL
from daft_sparsevideo.resolve import NO_FRAME

_DRIFT_S = 1e-4  # what LeRobot itself tolerates
_MOST_PROBLEMS = 5  # that are told of one video
_DECODED_AT_ONCE = 64

_FOUND_TYPE = pa.struct(
    [
        ("codec", pa.string()),
        ("frames", pa.int64()),
        ("closure_max", pa.int64()),
        ("closure_mean", pa.float64()),
        ("drift_s", pa.float64()),
        ("problems", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True)
class Verification:
    """What was found.

    Attributes:
        problems: One sentence each; none means that all is well.
        shards: A row for each video: `camera`, `shard` (its path in the dataset), `codec`, `frames`, `rows` (that the
            tables tell of), `closure_max` and `closure_mean` (pictures that a frame takes alone; null where pictures
            cannot be left out), `drift_s` (the farthest that a frame is from its row's time).
    """

    problems: tuple[str, ...]
    shards: DataFrame

    def __bool__(self) -> bool:
        return not self.problems


def verify_dataset(dataset: LeRobotDataset, closure: int | None, *, decode: bool) -> Verification:
    """Check all videos, and what lies beside them."""
    shards = dataset_shards(dataset, dataset.videos)
    times = _row_times(dataset)
    rows = _checked(dataset, shards, times, decode=decode)
    problems = _codec_problems(dataset, rows)
    for row in rows:
        bound = closure or _promised_closure(dataset, row["camera"])
        if bound is not None and row["closure_max"] is not None and row["closure_max"] > bound:
            row["problems"].append(f"a frame takes {row['closure_max']} pictures, more than {bound}")
        problems += [f"{row['shard']}: {problem}" for problem in row["problems"]]
    problems += _leftovers(dataset, {shard.name for shard in shards})
    names = ("camera", "shard", "codec", "frames", "rows", "closure_max", "closure_mean", "drift_s")
    return Verification(tuple(problems), daft.from_pydict({name: [row[name] for row in rows] for name in names}))


def _row_times(dataset: LeRobotDataset) -> dict[int, npt.NDArray[np.float64]]:
    """The timestamps of every episode's rows, in order."""
    frames = dataset.frames()
    where = f"the data of {dataset.root}"
    require_number(frames, "episode_index", where, "tells a row's episode")
    require(frames, "timestamp", where, "tells a row's time")
    table = frames.select("episode_index", "timestamp").to_arrow()
    episodes = table["episode_index"].to_numpy()
    order = np.lexsort((table["timestamp"].to_numpy(), episodes))
    times, numbers = table["timestamp"].to_numpy()[order], episodes[order]
    bounds = np.flatnonzero(np.diff(numbers)) + 1
    return {
        int(part[0]): values
        for part, values in zip(np.split(numbers, bounds), np.split(times, bounds), strict=True)
        if part.size
    }


def _checked(
    dataset: LeRobotDataset, shards: list[DatasetShard], times: dict[int, npt.NDArray[np.float64]], *, decode: bool
) -> list[dict[str, Any]]:
    if not shards:
        return []

    @daft.func.batch(return_dtype=DataType.from_arrow_type(_FOUND_TYPE), batch_size=1, use_process=False, max_retries=0)
    def check_batch(video: Series, episodes: Series, begins: Series, ends: Series, times: Series) -> pa.Array:
        columns = [column.to_pylist() for column in (episodes, begins, ends, times)]
        found = [
            _check(source, *row, decode=decode) for source, *row in zip(shard_sources(video), *columns, strict=True)
        ]
        return pa.array(found, _FOUND_TYPE)

    rows = daft.from_pydict(
        {
            "camera": [shard.camera for shard in shards],
            "shard": [shard.name for shard in shards],
            "path": [shard.path for shard in shards],
            "rows": [shard.num_frames for shard in shards],
            "episodes": [shard.episodes for shard in shards],
            "begins": [shard.begins_s for shard in shards],
            "ends": [shard.ends_s for shard in shards],
            "times": [[times.get(episode, np.zeros(0)).tolist() for episode in shard.episodes] for shard in shards],
        }
    )
    if daft.get_or_infer_runner_type() != "native":  # whose one process has all threads anyway
        rows = rows.into_partitions(len(shards))
    video = video_file(col("path"), verify=False, io_config=dataset.io_config)
    found = check_batch(video, *(col(name) for name in ("episodes", "begins", "ends", "times")))
    checked: list[dict[str, Any]] = rows.select("camera", "shard", "rows", found.alias("found")).to_pylist()
    checked.sort(key=lambda row: row["shard"])
    return [row | row.pop("found") for row in checked]


def _check(
    source: ShardSource | None,
    episodes: list[int],
    begins_s: list[float],
    ends_s: list[float],
    times_s: list[list[float]],
    *,
    decode: bool,
) -> dict[str, Any]:
    """What one video is, and what is wrong with it."""
    found: dict[str, Any] = dict.fromkeys(field.name for field in _FOUND_TYPE)
    problems: list[str] = []
    found["problems"] = problems
    if source is None:
        problems.append("there is no path")
        return found
    try:
        opened = open_anew(source)
    except SparseVideoError as error:
        problems.append(str(error))
        return found
    index = opened.shard.index
    found |= {"codec": index.codec, "frames": index.num_frames}
    sizes = closure_sizes(opened.shard)
    if sizes is not None:
        found |= {"closure_max": sizes.largest, "closure_mean": sizes.mean}
    drifts = [0.0]
    covered = np.zeros(index.num_frames, np.bool_)
    for episode, begin_s, end_s, rows_s in zip(episodes, begins_s, ends_s, times_s, strict=True):
        frames = opened.times.resolve(begin_s, np.array(rows_s, np.float32), end=end_s)
        own = np.unique(frames[frames != NO_FRAME])
        if own.size < frames.size:
            problems.append(
                f"episode {episode} has {frames.size - own.size} of {frames.size} rows without a frame of their own"
            )
        else:
            drifts.append(_drift_s(opened, frames, begin_s, rows_s))
            covered[frames] = True
            if drifts[-1] > _DRIFT_S:
                problems.append(f"episode {episode} has a frame that is {drifts[-1]:.6f} s from its row's time")
    found["drift_s"] = max(drifts)
    if not problems and not covered.all():
        problems.append(f"{(~covered).sum()} of {covered.size} frames belong to no row")
    if decode:
        problems += _decoding_problems(opened)
    del problems[_MOST_PROBLEMS:]
    return found


def _drift_s(opened: OpenShard, frames: npt.NDArray[np.int64], begin_s: float, rows_s: list[float]) -> float:
    """The farthest that a frame is from its row's time, beyond what float32 rounds."""
    times_s = np.array(rows_s, np.float64)
    drift = np.abs(opened.pts_s[frames] - begin_s - times_s) - np.spacing(np.abs(times_s).astype(np.float32))
    return float(np.maximum(drift, 0).max(initial=0.0))


def _decoding_problems(opened: OpenShard) -> list[str]:
    height, width = int(opened.height[0]), int(opened.width[0])
    problems = []
    data = np.empty((_DECODED_AT_ONCE, height * width * 3), np.uint8)
    for first in range(0, opened.num_frames, _DECODED_AT_ONCE):
        frames = np.arange(first, min(first + _DECODED_AT_ONCE, opened.num_frames), dtype=np.int64)
        places = np.arange(frames.size, dtype=np.int64) * data.shape[1]
        result = opened.shard.decode(frames, data.reshape(-1), places, height=height, width=width)
        problems += [f"frame {frames[position]}: {cause}" for position, _, cause in result.errors]
    return problems


def _codec_problems(dataset: LeRobotDataset, rows: list[dict[str, Any]]) -> list[str]:
    problems = []
    for key in dataset.videos:
        codecs = Counter(row["codec"] for row in rows if row["camera"] == key and row["codec"])
        about = _about(dataset, key)
        if len(codecs) > 1:
            told = ", ".join(f"{count} {codec}" for codec, count in codecs.most_common())
            problems.append(f"{key}: its videos are of different codecs: {told}")
        elif codecs and about.get("video.codec") not in (None, *codecs):
            problems.append(f"{key}: info.json says {about['video.codec']}, but its videos are {next(iter(codecs))}")
    return problems


def _about(dataset: LeRobotDataset, key: str) -> dict[str, Any]:
    feature = dataset.features[key]
    return feature.get("info") or feature.get("video_info") or {}


def _promised_closure(dataset: LeRobotDataset, key: str) -> int | None:
    promised: int | None = _about(dataset, key).get(INFO_KEY, {}).get("closure")
    return promised


def _leftovers(dataset: LeRobotDataset, videos: set[str]) -> list[str]:
    if "://" in dataset.root:
        return []
    root = Path(dataset.root)
    unfinished = [f"{path.relative_to(root)}: was never finished" for path in sorted(root.rglob(f"*{PARTIAL}"))]
    known = {path for path in (root / "videos").rglob("*.mp4") if path.is_file()}
    unknown = sorted(str(path.relative_to(root)) for path in known)
    return unfinished + [f"{name}: no episode lies in it" for name in unknown if name not in videos]
