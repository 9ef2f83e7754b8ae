# SPDX-License-Identifier: Apache-2.0
"""Files that have their names only when they are whole: written beside their place, or uploaded, by one owner."""

from __future__ import annotations

import atexit
import fcntl
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

from daft_sparsevideo.errors import ShardReadError, ShardWriteError, SparseVideoError
from daft_sparsevideo.open_shards import ShardSource

_COPY_BYTES = 16 << 20  # of a remote shard at a time

PARTIAL = ".partial"
"""What the name of a file that is being written ends with."""


@contextmanager
def whole_file(output: str, io_config: IOConfig | None) -> Iterator[str]:
    """Give a local path to write to; when the block ends without an error, the file gets its place.

    Args:
        output: Local path or URL. A file that is there is replaced at the end, and untouched until then.
        io_config: How a URL is written.

    Raises:
        ShardWriteError: It cannot be written.
    """
    if is_url(output):
        with tempfile.TemporaryDirectory() as folder:
            staged = str(Path(folder) / Path(output).name)
            yield staged
            _upload(staged, output, io_config)
        return
    with _as_write_errors(output):
        place = local_place(output)
        if place.exists() and not place.is_file():
            raise ShardWriteError(f"{output} is no regular file, and cannot be replaced", shard=output)
        place.parent.mkdir(parents=True, exist_ok=True)
        claim = _Claim(_staged(place), output)
    try:
        yield str(claim.path)
        with _as_write_errors(output):
            claim.finish(place)
    finally:
        claim.release()


def require_another_file(source: str, output: str) -> None:
    """Raise ShardWriteError where writing an output would destroy what it is made of.

    Args:
        source: Path or URL of what is read.
        output: Path or URL of what is to be written.
    """
    if is_url(source) or is_url(output):
        is_same = source == output
    else:
        with _as_write_errors(output):
            place = local_place(output)
            is_same = any(_is_same_file(Path(source), path) for path in (place, _staged(place)))
    if is_same:
        raise ShardWriteError(f"{output} is the source itself, {source}: write another file", shard=output)


def local_place(output: str) -> Path:
    """The absolute path of an output that is no URL of another kind than `file://`."""
    return Path(output.removeprefix("file://")).absolute()


def _staged(place: Path) -> Path:
    return place.with_name(f"{place.name}{PARTIAL}") if place.name else place


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except (OSError, ValueError):  # one of them is no file
        return False


@contextmanager
def _as_write_errors(output: str) -> Iterator[None]:
    try:
        yield
    except ShardWriteError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise ShardWriteError(f"{output} cannot be written: {error}", shard=output) from error


class _Claim:
    """A file that is being written, and that this writer alone has: its lock ends with the process at the latest."""

    def __init__(self, path: Path, output: str) -> None:
        self.path = path
        self._process = os.getpid()
        while True:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._file)
                raise ShardWriteError(f"{output} is being written by somebody else", shard=output) from None
            except OSError:  # a file system without locks
                break
            if self._has_name():  # its last owner may have given it its place meanwhile
                break
            os.close(self._file)
        _claims.add(self)

    def finish(self, place: Path) -> None:
        """Give the file its place, and keep it there even if the power fails."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        self.path.replace(place)

    def release(self) -> None:
        """Delete the file unless it has its place, and let others write."""
        self.delete()
        _claims.discard(self)
        with suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_UN)
        os.close(self._file)

    def delete(self) -> None:
        """Delete the file, if it has no place yet."""
        if self._process == os.getpid() and self._has_name():  # not in a fork
            self.path.unlink(missing_ok=True)

    def _has_name(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file), self.path.lstat())
        except OSError:
            return False


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
                shutil.copyfileobj(file, copy, _COPY_BYTES)
        except SparseVideoError:
            raise
        except Exception as error:  # of the storage layer, which raises many kinds
            raise ShardReadError(f"{source.path} cannot be read: {error}", shard=source.path) from error
        yield str(path)


def is_url(path: str) -> bool:
    """Whether a path names something that is not a local file."""
    return "://" in path and not path.startswith("file://")


_claims: set[_Claim] = set()


@atexit.register
def _delete_unfinished() -> None:
    """After Ctrl-C, Daft's threads still encode when the interpreter ends, and with it they end."""
    for claim in list(_claims):
        claim.delete()


def _upload(path: str, url: str, io_config: IOConfig | None) -> None:
    try:
        table = MicroPartition.from_pydict({"data": [Path(path).read_bytes()], "url": [url]})
        table.eval_expression_list(ExpressionsProjection([upload(col("data"), col("url"), io_config=io_config)]))
    except Exception as error:  # Daft's own kinds, by storage
        raise ShardWriteError(f"{url} cannot be written: {error}", shard=url) from error
