# SPDX-License-Identifier: Apache-2.0
"""LeRobot datasets as Daft frames: what `daft.datasets.lerobot` does, with sparsely decoded cameras and time windows.

A camera that is not loaded comes as three columns, of which `decode_frames` makes pictures after any filter:

| column | what |
|---|---|
| `videos/{key}/video` | the video file (shard) that holds the row's episode |
| `videos/{key}/from_timestamp` | seconds in the shard where the episode begins |
| `videos/{key}/to_timestamp` | seconds in the shard where it ends; the next episode may begin there |
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import daft.datasets.lerobot as daft_lerobot
from daft import DataFrame, DataType, Expression, col
from daft.functions import to_list
from daft.io import IOConfig

from daft_sparsevideo.arguments import check_count, check_on_error
from daft_sparsevideo.batch import OnError
from daft_sparsevideo.dataset_index import write_dataset_index
from daft_sparsevideo.dataset_layout import (
    SHARD_COLUMNS,
    DeltaTimestamps,
    LeRobotDataset,
    dataset_root,
    require,
    require_number,
)
from daft_sparsevideo.expressions import decode_frames, decode_windows
from daft_sparsevideo.resolve import Match
from daft_sparsevideo.row_windows import shifted_cells, stack
from daft_sparsevideo.stored_images import decoded_image, encoded_image

if TYPE_CHECKING:
    from daft_sparsevideo.dataset_verification import Verification
    from daft_sparsevideo.ddra import Closure
    from daft_sparsevideo.shard_encoding import Codec

__all__ = ["build_index", "info", "load_episode_frames", "read", "read_episodes", "read_tasks", "reencode", "verify"]


def read(
    dataset_uri: str | os.PathLike[str],
    io_config: IOConfig | None = None,
    include_stats: bool = False,  # noqa: FBT001, FBT002 - positional in Daft's reader too
    load_video_frames: bool | str | list[str] = False,  # noqa: FBT001, FBT002
    *,
    delta_timestamps: DeltaTimestamps | None = None,
    height: int | None = None,
    width: int | None = None,
    match: Match = "nearest",
    tolerance_s: float | None = None,
    on_error: OnError = "raise",
    batch_size: int | None = None,
    num_threads: int | None = None,
) -> DataFrame:
    """A dataset (v2.0, v2.1 or v3) as a lazy DataFrame of one row per frame, its episode's metadata in every row.

    Takes the place of `daft.datasets.lerobot.read`. A camera that is not loaded has the columns `videos/{key}/video`,
    `videos/{key}/from_timestamp` and `videos/{key}/to_timestamp`; a loaded one has its pictures in column `{key}`
    instead. Filters and limits put behind it are applied before anything is decoded. A row whose timestamp is not
    inside its episode is an error of that row, never a picture of the next episode.

    Args:
        dataset_uri: Folder, URL (`s3://...`, `hf://datasets/...`) or the Hugging Face name `org/name`. A folder that
            exists is taken first, where Daft's reader takes a relative `a/b` for a name.
        io_config: How remote files are read.
        include_stats: Keep the columns of per-episode statistics.
        load_video_frames: Cameras to decode: False (default) none, True all, or their keys. Cameras whose images lie
            in the data files are decoded too.
        delta_timestamps: Seconds relative to the row for each key, as in LeRobot: multiples of the frame interval, in
            any order. A camera's column then is a tensor [T, height, width, 3], that of another feature a tensor
            [T] or [T, its length], and `{key}_is_pad` tells which moments lie outside the episode; there the
            episode's first or last frame stands. These cameras need not be in `load_video_frames`. All but videos need
            every row of the dataset: a filter saves them nothing.
        height: Pixels, with `width`, of all decoded cameras. None (default) keeps a picture's own size, and takes
            the size that info.json tells for windows. Images of the data files are resized by Daft.
        width: Pixels; given together with `height` or not at all.
        match: As in `decode_frames`.
        tolerance_s: As in `decode_frames`.
        on_error: As in `decode_frames`, also for images that cannot be decoded.
        batch_size: Most rows decoded together. None (default) is 128, or 32 where there are windows.
        num_threads: As in `decode_frames`.

    Returns:
        Lazy DataFrame. Pictures are `image("RGB", height, width)`, or `image("RGB")` without a size.

    Raises:
        FileNotFoundError: There is no dataset.
        ValueError: Its version is not supported, it lacks a column that is needed, a key is not one of its cameras or
            features, or an option is out of its range.
        TypeError: An option or one of the dataset's columns is of the wrong type.

    Example:
        >>> from daft import col
        >>> from daft_sparsevideo import lerobot
        >>> frames = lerobot.read(dataset_path, load_video_frames=True, height=48, width=64)
        >>> row = frames.where(col("frame_index") == 7).limit(1).to_pydict()
        >>> row["observation.images.top"][0].shape
        (48, 64, 3)
    """
    options: dict[str, Any] = {"match": match, "tolerance_s": tolerance_s, "on_error": on_error}
    batch_size = batch_size if batch_size is not None else 32 if delta_timestamps else 128
    options |= {"batch_size": batch_size, "num_threads": num_threads}
    decode_frames("", 0.0, 0.0, height=height, width=width, **options)  # refuses wrong options, decoded or not
    size = None if height is None or width is None else (height, width)
    dataset = LeRobotDataset.open(dataset_uri, io_config)
    steps = dataset.frame_steps(delta_timestamps or {})
    asked = [*dataset.chosen_cameras(load_video_frames), *(key for key in steps if key in dataset.cameras)]
    loaded = list(dict.fromkeys(asked))
    loader = _Loader(dataset, size, options)

    episodes = dataset.episodes(include_meta=False, include_stats=include_stats, include_video_metadata=True)
    frames = dataset.frames()
    for key in steps:
        if key not in dataset.videos:
            frames = loader.add_row_window(frames, key, steps[key])
    rows = dataset.join(episodes, frames)
    if loaded:
        rows = rows.into_batches(batch_size)
    for key in loaded:
        load = loader.load_video if key in dataset.videos else loader.load_images
        rows = load(rows, key, steps.get(key))
    kept = {f"videos/{key}/{name}" for key in dataset.videos if key not in loaded for name in SHARD_COLUMNS}
    return rows.exclude(*(name for name in rows.column_names if name.startswith("videos/") and name not in kept))


def read_episodes(
    dataset_uri: str | os.PathLike[str],
    io_config: IOConfig | None = None,
    include_meta: bool = False,  # noqa: FBT001, FBT002 - these four are positional in Daft's reader too
    include_stats: bool = False,  # noqa: FBT001, FBT002
    include_video_metadata: bool = False,  # noqa: FBT001, FBT002
) -> DataFrame:
    """The dataset's episodes as a lazy DataFrame of one row each, with the video file of every camera.

    Args:
        dataset_uri: As in `read`.
        io_config: How remote files are read.
        include_meta: Keep the columns `meta/...`, which tell where the episode's own metadata lie.
        include_stats: Keep the columns of per-episode statistics.
        include_video_metadata: Keep all of `videos/{key}/...`, of which `from_timestamp` and `to_timestamp` are what
            `decode_frames` needs. False (default) keeps `videos/{key}/video` alone.

    Returns:
        Lazy DataFrame. What the dataset does not tell about an episode's end follows from its length.

    Raises:
        FileNotFoundError: There is no dataset.
        ValueError: Its version is not supported, or it lacks a column that is needed.
        TypeError: One of the columns that are needed is of the wrong type.

    Example:
        >>> from daft_sparsevideo import lerobot
        >>> episodes = lerobot.read_episodes(dataset_path, include_video_metadata=True)
        >>> episodes.select("length", "videos/observation.images.top/to_timestamp").to_pydict()
        {'length': [9, 12], 'videos/observation.images.top/to_timestamp': [0.9, 2.1]}
    """
    return LeRobotDataset.open(dataset_uri, io_config).episodes(
        include_meta=include_meta, include_stats=include_stats, include_video_metadata=include_video_metadata
    )


def load_episode_frames(
    episodes: DataFrame, dataset_uri: str | os.PathLike[str], io_config: IOConfig | None = None
) -> DataFrame:
    """The frames of some episodes as a lazy DataFrame of one row each, with all columns of `episodes`.

    Args:
        episodes: What `read_episodes` gave, filtered and extended as you like; needs the column `episode_index`.
        dataset_uri: The dataset they are of, as in `read`.
        io_config: How remote files are read.

    Returns:
        Lazy DataFrame.

    Raises:
        FileNotFoundError: There is no dataset.
        ValueError: Its version is not supported, or `episode_index` is missing.

    Example:
        >>> from daft import col
        >>> from daft_sparsevideo import decode_frames, lerobot
        >>> episodes = lerobot.read_episodes(dataset_path, include_video_metadata=True).where(col("length") > 10)
        >>> frames = lerobot.load_episode_frames(episodes, dataset_path).where(col("frame_index") == 3)
        >>> shard, offset, end = (
        ...     col(f"videos/observation.images.top/{name}") for name in ("video", "from_timestamp", "to_timestamp")
        ... )
        >>> top = decode_frames(shard, offset, col("timestamp"), end=end)
        >>> [picture.shape for picture in frames.select(top).to_pydict()["frame"]]
        [(64, 96, 3)]
    """
    dataset = LeRobotDataset.open(dataset_uri, io_config)
    return dataset.join(episodes, dataset.frames())


def read_tasks(dataset_uri: str | os.PathLike[str], io_config: IOConfig | None = None) -> DataFrame:
    """The dataset's tasks as a lazy DataFrame.

    Args:
        dataset_uri: As in `read`.
        io_config: How remote files are read.

    Returns:
        Lazy DataFrame with `task_index`, and the task's words in `task`.

    Raises:
        FileNotFoundError: There is no list of tasks.

    Example:
        >>> from daft_sparsevideo import lerobot
        >>> lerobot.read_tasks(dataset_path).to_pydict()
        {'task_index': [0], 'task': ['Put the cube into the bowl.']}
    """
    return daft_lerobot.read_tasks(dataset_root(dataset_uri), io_config=io_config)


def info(dataset_uri: str | os.PathLike[str], io_config: IOConfig | None = None) -> dict[str, Any]:
    """What the dataset's `meta/info.json` says: frame rate, features, paths.

    Args:
        dataset_uri: As in `read`.
        io_config: How remote files are read.

    Returns:
        The parsed file.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not JSON, or of a version that is not supported.

    Example:
        >>> from daft_sparsevideo import lerobot
        >>> about = lerobot.info(dataset_path)
        >>> about["codebase_version"], about["fps"]
        ('v3.0', 10)
    """
    return LeRobotDataset.open(dataset_uri, io_config).info


def build_index(
    dataset_uri: str | os.PathLike[str],
    io_config: IOConfig | None = None,
    *,
    output: str | os.PathLike[str] | None = None,
) -> DataFrame:
    """Index all videos of a dataset and write one file a camera, so that opening them again reads no pictures.

    The videos are indexed by a Daft query, on all workers of the runner. Opening a video finds its index file by
    itself where it is `{dataset}/meta/sparsevideo/{camera}.parquet`. An index file goes on being right when the
    dataset is copied or moved; videos that were changed or added since are noticed, and indexed when they are opened.

    Args:
        dataset_uri: As in `read`.
        io_config: How remote files are read.
        output: Folder for the files. None (default) is `meta/sparsevideo` in the dataset, which must be a folder here.

    Returns:
        DataFrame of one row a video: `camera`, `shard` (its path in the dataset), `frames`, `pictures` (coded ones) and
        `index`, the file that was written.

    Raises:
        FileNotFoundError: There is no dataset.
        ValueError: Its version is not supported, or it is remote and `output` is missing.
        OSError: The files cannot be written.

    Example:
        >>> from daft_sparsevideo import lerobot
        >>> built = lerobot.build_index(dataset_path)
        >>> built.where(built["camera"] == "observation.images.top").select("shard", "frames").to_pydict()
        {'shard': ['videos/observation.images.top/chunk-000/file-000.mp4'], 'frames': [21]}
    """
    return write_dataset_index(
        LeRobotDataset.open(dataset_uri, io_config), None if output is None else os.fspath(output)
    )


def reencode(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    io_config: IOConfig | None = None,
    *,
    cameras: Sequence[str] | None = None,
    codec: Codec = "hevc",
    interval: int | Literal["auto"] = "auto",
    closure: Closure = 3,
    closed: bool = False,
    crf: float | None = None,
    psnr_db: float | None = None,
    match_source: bool = False,
    preset: str = "medium",
    fragmented: bool = False,
    num_threads: int | None = None,
    on_error: OnError = "raise",
    progress: bool | None = None,
) -> DataFrame:
    """Write a dataset anew, in which every frame of its videos is a few pictures away: a drop-in for the old one.

    Videos are encoded as `reencode_ddra` does, each episode by itself, and get the names that they had. Tables and
    all other files are copied as they are, index files are written along, and `meta/info.json`, which tells the new
    codec and settings, comes last. The source is only read. A run that was ended, by whatever, goes on where it was
    when it is called again with the same source, target and settings.

    Args:
        src: The dataset, as in `read`.
        dst: Folder for the new one: new, empty, or left by an earlier run.
        io_config: How a remote source is read.
        cameras: Keys of the cameras to encode anew; the videos of others are copied. None (default): all.
        codec: As in `reencode_ddra`, and so are interval, closure, closed, crf, psnr_db, match_source and preset.
        interval: Frames from one anchor to the next, or "auto".
        closure: 3 (default) or 4.
        closed: Every interval starts anew.
        crf: Rate factor; 20 where no other quality is asked for.
        psnr_db: The mean RGB PSNR to reach in each video.
        match_source: Reach the PSNR of another encode in the source's own codec and size.
        preset: Of the encoder.
        fragmented: Write a fragment for each episode.
        num_threads: Threads for one video. None (default): the thread budget, shared by the videos under way.
        on_error: "raise" (default) ends with the first video that fails. "null" goes on, and its row says in `error`
            what went wrong; `meta/info.json` is not written then.
        progress: Show a bar with the time left. None (default): where there is a terminal.

    Returns:
        DataFrame of one row a video: `camera`, `shard` (its path in the dataset) and the fields of `reencode_ddra`.

    Raises:
        FileNotFoundError: There is no dataset.
        FileExistsError: `dst` holds something else, or was begun with another source or settings, or another run is
            at it.
        ValueError: An option is out of its range, or source and target are not two folders.
        SparseVideoError: A video cannot be read or written, or what was written is not what was asked for.

    Example:
        >>> from daft_sparsevideo import lerobot
        >>> report = lerobot.reencode(dataset_path, f"{output_folder}/new", interval=8)
        >>> report.select("shard", "frames", "closure_max").limit(1).to_pydict()
        {'shard': ['videos/observation.images.top/chunk-000/file-000.mp4'], 'frames': [21], 'closure_max': [3]}
    """
    from daft_sparsevideo.dataset_reencoding import DatasetReencoding
    from daft_sparsevideo.shard_encoding import Settings

    dataset = LeRobotDataset.open(src, io_config)
    keys = tuple(dataset.chosen_videos(cameras))
    settings = Settings(
        codec, interval, closure, bool(closed), crf, psnr_db, match_source, preset, bool(fragmented), num_threads
    )
    return DatasetReencoding(dataset, Path(dst).absolute(), keys, settings, check_on_error(on_error), progress).run()


def verify(
    dataset_uri: str | os.PathLike[str],
    io_config: IOConfig | None = None,
    *,
    closure: int | None = None,
    decode: bool = False,
) -> Verification:
    """Check that the videos of a dataset are what its tables tell; any dataset, whoever wrote it.

    Every video is opened and indexed, by a Daft query. A problem is: a video that is missing or cannot be read;
    rows without a frame of their own, frames without a row; frames more than 0.1 ms from their rows' times;
    codecs that differ within a camera or from `info.json`; closures above `closure`; and, in folders here, videos
    that no episode names and files that were never finished.

    Args:
        dataset_uri: As in `read`.
        io_config: How remote files are read.
        closure: Pictures that any frame may take. None (default): what `info.json` says if `reencode` wrote it, and
            without bound otherwise.
        decode: Decode every frame, too, which finds damage inside pictures.

    Returns:
        The problems, and a row for each video.

    Raises:
        FileNotFoundError: There is no dataset.
        ValueError: Its version is not supported, or it lacks a column that is needed.

    Example:
        >>> from daft_sparsevideo import lerobot
        >>> found = lerobot.verify(dataset_path)
        >>> found.problems
        ()
        >>> found.shards.select("frames", "drift_s").limit(1).to_pydict()
        {'frames': [21], 'drift_s': [0.0]}
    """
    from daft_sparsevideo.dataset_verification import verify_dataset

    bound = None if closure is None else check_count("closure", closure, "picture")
    return verify_dataset(LeRobotDataset.open(dataset_uri, io_config), bound, decode=bool(decode))


@dataclass(frozen=True)
class _Loader:
    """Adds pictures and windows to the tables of a dataset."""

    dataset: LeRobotDataset
    size: tuple[int, int] | None  # height, width
    options: dict[str, Any]  # of decode_frames and decode_windows alike

    def add_row_window(self, frames: DataFrame, key: str, steps: list[int]) -> DataFrame:
        """Put into each row what the rows around it hold: a tensor of numbers, or a list of encoded images."""
        where = f"the data of {self.dataset.root}"
        require(frames, key, where, "delta_timestamps asks for")
        require_number(frames, "frame_index", where, "orders the rows of an episode")
        if key in self.dataset.images:
            cells, is_pad = shifted_cells(key, steps)
            frames = frames.with_column(key, self.encoded(frames, key))
            return frames.with_columns({key: to_list(*cells), f"{key}_is_pad": is_pad})
        column = kind = frames.schema()[key].dtype
        shape: tuple[int, ...] = ()
        if kind.is_fixed_size_list() or kind.is_list():
            kind, shape = kind.dtype, (math.prod(self.dataset.features[key]["shape"]),)
            frames = frames.with_column(key, col(key).cast(DataType.fixed_size_list(kind, *shape)))
        if not kind.is_numeric() and not kind.is_boolean():
            raise ValueError(
                f"delta_timestamps: column {key!r} of {where} is {column}; "
                "windows are made of cameras, numbers and lists of numbers"
            )
        cells, is_pad = shifted_cells(key, steps)
        return frames.with_columns({key: stack(cells, kind, shape), f"{key}_is_pad": is_pad})

    def load_images(self, rows: DataFrame, key: str, steps: list[int] | None) -> DataFrame:
        """Turn encoded images, or the lists of them that `add_row_window` made, into pictures or windows."""
        on_error = self.options["on_error"]
        if steps is None:
            return rows.with_column(key, decoded_image(self.encoded(rows, key), size=self.size, on_error=on_error))
        size = self.size or self.dataset.picture_size(key)
        pictures = [decoded_image(col(key).get(i), size=size, on_error=on_error) for i in range(len(steps))]
        window = stack(pictures, DataType.uint8(), (*size, 3), batch_size=self.options["batch_size"])
        return rows.with_column(key, window)

    def encoded(self, rows: DataFrame, key: str) -> Expression:
        """The bytes of each row's stored image."""
        root, io_config = self.dataset.root, self.dataset.io_config
        return encoded_image(rows, key, root=root, on_error=self.options["on_error"], io_config=io_config)

    def load_video(self, rows: DataFrame, key: str, steps: list[int] | None) -> DataFrame:
        """Decode a camera's frames or windows out of its shards."""
        shard, offset, end = (f"videos/{key}/{name}" for name in SHARD_COLUMNS)
        moment = (col(shard), col(offset), self.timestamp(rows))
        if steps is None:
            height, width = self.size or (None, None)
            shared = self.dataset.version > 2  # before that, an episode ends with its file
            until = col(end) if shared and end in rows.column_names else None
            return rows.with_column(key, decode_frames(*moment, end=until, height=height, width=width, **self.options))

        where = f"the episodes of {self.dataset.root}"
        require_number(rows, end, where, "ends the windows unless 'length' does")
        height, width = self.size or self.dataset.picture_size(key)
        deltas_s = [step / self.dataset.fps for step in steps]
        window = decode_windows(*moment, end=col(end), deltas_s=deltas_s, height=height, width=width, **self.options)
        both = f"{key}/window"
        parts = {key: col(both).get("frames"), f"{key}_is_pad": col(both).get("is_pad")}
        return rows.with_column(both, window).with_columns(parts).exclude(both)

    def timestamp(self, rows: DataFrame) -> Expression:
        """Seconds since the episode's begin; from the frame's number where the data do not tell."""
        if "timestamp" not in rows.column_names and "frame_index" in rows.column_names:
            return col("frame_index") / self.dataset.fps
        require_number(rows, "timestamp", f"the data of {self.dataset.root}", "tells the time of each frame")
        return col("timestamp")
