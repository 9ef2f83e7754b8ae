# SPDX-License-Identifier: Apache-2.0
"""Index files, written and read: the rows of shards in Parquet, whole shards to a row group."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from daft_sparsevideo import _core
from daft_sparsevideo.errors import IndexFileError
from daft_sparsevideo.index_places import DATASET_FOLDER, beside
from daft_sparsevideo.index_rows import SCHEMA, VERSION, contents_of, table_of

_VERSION_KEY = "sparsevideo.index"
_ROWS_OF_A_GROUP = 1 << 14  # at least; the rows of a shard are never parted
_MOST_ROWS = 1 << 28
_DELTAS = ("pts", "dts", "gap", "frame", "frame_pts")
_PLAIN = ("checksum", "headers", "references.list.element", "flags", "reach", "lists_hash", "facts", "extradata")


def write_index(
    shards: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
) -> Path:
    """Index videos and write what was found into one file, so that opening them again reads no pictures.

    Opening a video finds its index file by itself: `{video}.sparsevideo.parquet` beside it, or, in a LeRobot dataset,
    `{dataset}/meta/sparsevideo/{camera}.parquet` with all videos of a camera.

    Args:
        shards: A path, or paths of the videos that one file shall describe.
        output: The file to write; what was there is replaced at the end. None (default), for a single video: the
            file beside it.

    Returns:
        The path of the file.

    Raises:
        SparseVideoError: A video is missing, cannot be read, or is no video; nothing is written then.
        OSError: The file cannot be written.

    Example:
        >>> import shutil
        >>> from daft_sparsevideo import VideoDecoder
        >>> copy = shutil.copy(video_path, f"{video_path}.copy.mp4")
        >>> write_index(copy).name
        'clip.mp4.copy.mp4.sparsevideo.parquet'
        >>> len(VideoDecoder(copy))
        90
    """
    paths = [Path(shards)] if isinstance(shards, (str, os.PathLike)) else [Path(shard) for shard in shards]
    if not paths or (output is None and len(paths) > 1):
        raise ValueError(f"{len(paths)} shards: give one, or several with an output")
    file = Path(output) if output is not None else beside(paths[0])
    names = _names(paths, file)
    tables = (
        table_of(_core.Shard(str(path), name=str(path)).contents(), name)
        for path, name in sorted(zip(paths, names, strict=True), key=lambda named: named[1])
    )
    return write_tables(tables, file)


def write_tables(tables: Iterable[pa.Table], output: Path) -> Path:
    """Write the rows of shards (`table_of`) into one file, whole or not at all."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".sparsevideo-") as scratch:
        written = Path(scratch) / output.name
        with _writer(written) as writer:
            writer.add_key_value_metadata({_VERSION_KEY: VERSION})
            for group in _groups(tables):
                writer.write_table(group, row_group_size=group.num_rows)
        written.replace(output)
    return output


def _writer(path: Path) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        path,
        SCHEMA,
        compression="zstd",
        compression_level=19,
        use_dictionary=["shard", "duration", "width", "height"],
        column_encoding=dict.fromkeys(_DELTAS, "DELTA_BINARY_PACKED")
        | dict.fromkeys(_PLAIN, "PLAIN")
        | {"size": "BYTE_STREAM_SPLIT"},
        write_statistics=False,
        write_page_checksum=True,
        store_schema=False,
    )


def _groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Tables put together until they are worth a row group."""
    group: list[pa.Table] = []
    for table in tables:
        group.append(table)
        if sum(part.num_rows for part in group) >= _ROWS_OF_A_GROUP:
            yield pa.concat_tables(group)
            group = []
    if group:
        yield pa.concat_tables(group)


def _names(paths: list[Path], file: Path) -> list[str]:
    """What the file calls its shards: paths from the dataset's folder, or from the folder that holds them all."""
    absolute = [path.absolute() for path in paths]
    folder = file.absolute().parent
    root = Path(os.path.commonpath([path.parent for path in absolute]))
    dataset = folder.parent.parent
    if folder == dataset / DATASET_FOLDER and root.is_relative_to(dataset):
        root = dataset
    names = [path.relative_to(root).as_posix() for path in absolute]
    if len(set(names)) < len(names):
        raise ValueError("a shard is given twice")
    return names


class IndexFile:
    """An index file of which it is known what it tells of."""

    def __init__(self, path: Path) -> None:
        self.path = path
        metadata = pq.read_metadata(path)
        version = (metadata.metadata or {}).get(_VERSION_KEY.encode(), b"").decode(errors="replace")
        if version != VERSION:
            raise IndexFileError(f"it is of version {version!r}, not {VERSION!r}")
        if metadata.schema.to_arrow_schema().remove_metadata() != SCHEMA or metadata.num_rows > _MOST_ROWS:
            raise IndexFileError("it is damaged: it has other columns, or more rows than an index can have")
        self._rows: dict[str, tuple[int, int, int]] = {}  # row group, first row, number of rows
        with self._parquet() as parquet:
            for group in range(metadata.num_row_groups):
                shards = parquet.read_row_group(group, ["shard"], use_threads=False).column(0)
                runs = shards.combine_chunks().dictionary_encode()
                codes = np.asarray(runs.indices)
                begins = np.flatnonzero(np.diff(codes, prepend=-1))
                for begin, end in zip(begins, [*begins[1:], codes.size], strict=True):
                    name = runs.dictionary[int(codes[begin])].as_py()
                    if name in self._rows:
                        raise IndexFileError(f"it is damaged: it tells of {name} twice")
                    self._rows[name] = group, int(begin), int(end - begin)

    @property
    def names(self) -> list[str]:
        """The shards that it tells of."""
        return list(self._rows)

    def contents(self, name: str) -> _core.IndexContents:
        """What it tells of a shard."""
        if name not in self._rows:
            raise IndexFileError(f"it does not tell of {name}")
        group, begin, count = self._rows[name]
        return contents_of(self._group(group).slice(begin, count), name)

    @functools.lru_cache(maxsize=2)  # noqa: B019 - of all files: shards of a group are opened one after another
    def _group(self, group: int) -> pa.Table:
        with self._parquet() as parquet:
            return parquet.read_row_group(group, use_threads=False)

    def _parquet(self) -> pq.ParquetFile:
        return pq.ParquetFile(self.path, page_checksum_verification=True)


def open_index_file(path: Path) -> IndexFile:
    """The file, read again only when it has changed. Raises whatever pyarrow does where it is damaged."""
    status = path.stat()
    return _cached(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _cached(path: Path, _size_bytes: int, _modified_ns: int) -> IndexFile:
    return IndexFile(path)
