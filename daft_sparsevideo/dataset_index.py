# SPDX-License-Identifier: Apache-2.0
"""The index files of a LeRobot dataset, made by a Daft query with a row for each video file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import daft
import pyarrow as pa
from daft import DataFrame, DataType, Series, col
from daft.functions import video_file

from daft_sparsevideo.dataset_layout import LeRobotDataset
from daft_sparsevideo.index_files import write_tables
from daft_sparsevideo.index_places import DATASET_FOLDER
from daft_sparsevideo.index_rows import SCHEMA, table_of
from daft_sparsevideo.open_shards import ShardSource, open_anew

_MOST_PARTITIONS = 64  # among which workers share the videos

_FIELDS = {
    "shard": DataType.string(),
    "frames": DataType.int64(),
    "pictures": DataType.int64(),
    "rows": DataType.binary(),
}


def write_dataset_index(
    dataset: LeRobotDataset, output: str | None, *, cameras: Sequence[str] | None = None
) -> DataFrame:
    """Index the videos of some cameras (None: all), write one file a camera, and return a row for each video."""
    cameras = dataset.videos if cameras is None else cameras
    if output is None and "://" in dataset.root:
        raise ValueError(f"{dataset.root} is no folder here: give output, a folder for its index files")
    folder = Path(output or f"{dataset.root}/{DATASET_FOLDER}").absolute()
    written: dict[str, Any] = {name: [] for name in ("camera", "shard", "frames", "pictures", "index")}
    for key in cameras:
        indexed = _indexed(dataset, key).to_pydict()
        file = write_tables(map(_table, indexed["rows"]), folder / f"{key}.parquet")
        for name in ("shard", "frames", "pictures"):
            written[name] += indexed[name]
        written["camera"] += [key] * len(indexed["shard"])
        written["index"] += [str(file)] * len(indexed["shard"])
    return daft.from_pydict(written)


def _indexed(dataset: LeRobotDataset, key: str) -> DataFrame:
    """The video files of a camera, in the order of their names, and what an index file shall hold of each."""
    root = dataset.root

    @daft.func.batch(return_dtype=DataType.struct(_FIELDS), batch_size=1, use_process=False, max_retries=0)
    def index_batch(videos: Series) -> pa.Array:
        return index_column(videos, root)

    episodes = dataset.episodes(include_meta=False, include_stats=False, include_video_metadata=False)
    found: dict[str, Any] = episodes.select(col(f"videos/{key}/video").file_path().alias("path")).distinct().to_pydict()
    paths = daft.from_pydict(found)
    if daft.get_or_infer_runner_type() != "native":  # whose one process has all threads anyway
        paths = paths.into_partitions(min(max(len(found["path"]), 1), _MOST_PARTITIONS))
    video = video_file(col("path"), verify=False, io_config=dataset.io_config)
    indexed = paths.select(index_batch(video).alias("indexed"))
    return indexed.select(*(col("indexed").get(name).alias(name) for name in _FIELDS)).sort("shard")


def index_column(videos: Series, root: str) -> pa.Array:
    """Index one batch of videos; what the Daft function calls on every worker."""
    cells = []
    for video in videos.to_pylist():
        name = video.path.removeprefix("file://").removeprefix(root).lstrip("/")
        shard = open_anew(ShardSource.of_file(video)).shard
        cell = {"shard": name, "frames": shard.index.num_frames, "pictures": shard.index.num_pictures}
        cells.append(cell | {"rows": _bytes(table_of(shard.contents(), name))})
    types = {"shard": pa.string(), "frames": pa.int64(), "pictures": pa.int64(), "rows": pa.large_binary()}
    return pa.array(cells, pa.struct(types.items()))


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _table(rows: bytes) -> pa.Table:
    with pa.ipc.open_stream(rows) as reader:
        return reader.read_all()
