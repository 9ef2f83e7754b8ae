# SPDX-License-Identifier: Apache-2.0
"""Files that have their names only when they are whole: written beside their place, or uploaded, by one owner."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from daft import col
from daft.expressions import ExpressionsProjection
from daft.functions import upload
from daft.io import IOConfig
from daft.recordbatch import MicroPartition

from daft_sparsevideo.errors import ShardReadError, ShardWriteError
from daft_sparsevideo.open_shards import ShardSource

PARTIAL = ".partial"
"""What the name of a file that is being written ends with."""


@contextmanager
def whole_file(output: str, io_config: IOConfig | None, *, source: str | None = None) -> Iterator[str]:
    """Give a local path to write to; when the block ends without an error, the file gets its place.

    Args:
        output: Local path or URL. A file that is there is replaced at the end, and untouched until then.
        io_config: How a URL is written.
        source: A local file that must not be the output.

    Raises:
        ShardWriteError: It cannot be written, or is the source.
    """
    if is_url(output):
        with tempfile.TemporaryDirectory() as folder:
            staged = str(Path(folder) / Path(output).name)
            yield staged
            _upload(staged, output, io_config)
        return
    place = Path(output.removeprefix("file://")).absolute()
    staged = f"{place}{PARTIAL}"
    if source is not None and Path(source).exists() and place.exists() and place.samefile(source):
        raise ShardWriteError(f"{output} is the source, which is only read: give another place", shard=output)
    try:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            yield staged
            with Path(staged).open("rb") as file:
                os.fsync(file.fileno())
            Path(staged).replace(place)
        except OSError as error:
            if isinstance(error, ShardWriteError | ShardReadError) or error.filename is None:
                raise
            raise ShardWriteError(f"{place} cannot be written: {error}", shard=output) from error
    finally:
        with suppress(OSError):  # it was not written
            Path(staged).unlink()


@contextmanager
def local_file(source: ShardSource) -> Iterator[str]:
    """Give a local path to a shard's bytes: its own, or that of a copy which is deleted afterwards.

    Raises:
        ShardReadError: It cannot be read.
        ShardNotFoundError: There is no such file.
    """
    if source.open is None:
        yield source.path
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "source"
        try:
            with source.open() as file, path.open("wb") as copy:
                shutil.copyfileobj(file, copy, 16 << 20)
        except OSError as error:
            raise ShardReadError(f"{source.path} cannot be read: {error}", shard=source.path) from error
        yield str(path)


def is_url(path: str) -> bool:
    """Whether a path names something that is not a local file."""
    return "://" in path and not path.startswith("file://")


def _upload(path: str, url: str, io_config: IOConfig | None) -> None:
    try:
        table = MicroPartition.from_pydict({"data": [Path(path).read_bytes()], "url": [url]})
        table.eval_expression_list(ExpressionsProjection([upload(col("data"), col("url"), io_config=io_config)]))
    except Exception as error:  # Daft's own kinds, by storage
        raise ShardWriteError(f"{url} cannot be written: {error}", shard=url) from error
