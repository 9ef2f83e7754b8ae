# SPDX-License-Identifier: Apache-2.0
"""The shards this process has open: one index and at most one descriptor for each, however many threads ask.

Opening a shard costs one pass over its headers, or reading an index file, so its index is kept and shared. Two bounds
hold: descriptors (the least recently used shard gives its back, and takes it again at its next read) and bytes of
indexes (the least recently used shard is forgotten). A file that changed on disk is another shard. A failed opening is
not remembered.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from daft_sparsevideo import _core
from daft_sparsevideo.errors import (
    IndexFileError,
    IndexFileWarning,
    ShardNotFoundError,
    ShardReadError,
    SparseVideoError,
)
from daft_sparsevideo.index_places import Place, place_in, places_of
from daft_sparsevideo.resolve import FrameTimes, seconds
from daft_sparsevideo.stats import count_opened_shard

if TYPE_CHECKING:
    import daft

MAX_DESCRIPTORS = 64
MAX_INDEX_BYTES = 512 << 20
REMOTE_READ_BYTES = 64 << 10  # what one seek in a remote file fetches; Daft's own default is 16 MB


_Version = tuple[int, int] | None


@dataclass(frozen=True)
class ShardSource:
    """Where a shard's bytes are, and what tells it from every other shard.

    Two sources are the same shard when their fields are equal, `open` aside.
    """

    path: str  # a local path, or the URL of something that is not a local file
    position: int | None = None  # byte range of `path`, or None for all of it
    size_bytes: int | None = None
    io_config: object = None  # hashable: how Daft reaches the URL
    open: Callable[[], BinaryIO] | None = field(default=None, compare=False)  # None: a local file, opened by path
    index: str | None = None  # the index file to use; None: one is looked for beside a local file

    @classmethod
    def of_path(cls, path: str) -> ShardSource:
        """The shard at a local path, a `file://` URL, or a URL that Daft can open.

        >>> ShardSource.of_path("file:///data/top.mp4").path
        '/data/top.mp4'
        """
        if _is_local(path):
            return cls(_local_path(path))
        import daft

        return cls.of_file(daft.File(path))

    @classmethod
    def of_file(cls, file: daft.File, io_config: object = None) -> ShardSource:
        """The shard that a `daft.File` names; a whole local file is read by its path.

        Args:
            file: The file, or a byte range of it.
            io_config: Anything hashable that differs where the file's IOConfig does.
        """
        size_bytes = file._inner.size()  # noqa: SLF001 - of the range; File.size() would ask the storage
        if not _is_local(file.path):
            return cls(file.path, file.position, size_bytes, io_config, lambda: _open_file(file))
        if file.position is None and size_bytes is None:
            return cls(_local_path(file.path))
        return cls(_local_path(file.path), file.position, size_bytes, open=lambda: _open_file(file))

    def version(self) -> _Version:
        """Size in bytes and time of change in ns of a local file; None for a URL, which is not asked again."""
        if "://" in self.path:
            return None
        try:
            status = Path(self.path).stat()
        except (FileNotFoundError, NotADirectoryError):
            raise ShardNotFoundError(f"there is no file {self.path}", shard=self.path) from None
        except (OSError, ValueError) as error:  # ValueError: a null byte in the path
            raise ShardReadError(f"{self.path} cannot be read: {error}", shard=self.path) from error
        return status.st_size, status.st_mtime_ns


@dataclass(eq=False)
class OpenShard:
    """A shard with what its index says of each frame, in presentation order."""

    name: str  # how messages call it
    shard: _core.Shard
    times: FrameTimes
    pts_s: npt.NDArray[np.float64]
    duration_s: npt.NDArray[np.float64]
    height: npt.NDArray[np.int32]  # pixels, as coded
    width: npt.NDArray[np.int32]
    rotation: int  # degrees clockwise
    version: _Version = None
    users: int = 0  # calls that are decoding from it now
    kept: bool = False  # it is in the cache, which looks after its descriptor

    @classmethod
    def of(
        cls,
        source: str | bytes | BinaryIO,
        *,
        name: str,
        version: _Version = None,
        place: Place | None = None,
    ) -> OpenShard:
        """Open a shard and index it, or take its index from a `place`; `name` is how messages call it."""
        shard = _core.Shard(source, name=name) if place is None else place.open(source, name=name)
        count_opened_shard()
        index = shard.index
        pts, duration, time_base = index.frame_pts, index.frame_duration, index.time_base
        return cls(
            name,
            shard,
            FrameTimes.of(pts, duration, time_base),
            seconds(pts, time_base),
            seconds(duration, time_base),
            index.frame_height,
            index.frame_width,
            index.rotation,
            version,
        )

    @property
    def num_frames(self) -> int:
        """Frames that are shown."""
        return self.pts_s.size

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the index holds."""
        frames = (self.pts_s, self.duration_s, self.height, self.width)
        return self.shard.index.nbytes + self.times.nbytes + sum(column.nbytes for column in frames)

    def frame_shapes(
        self, frames: npt.NDArray[np.int64], *, apply_rotation: bool
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Heights and widths of frames as they are returned when no size is asked for."""
        height, width = self.height[frames], self.width[frames]
        return (width, height) if apply_rotation and self.rotation in (90, 270) else (height, width)


class OpenShards:
    """A bounded set of open shards, for all threads of a process.

    Args:
        max_descriptors: Local files held open at once. A shard in use keeps its own, so more threads than this
            that decode at once hold more.
        max_index_bytes: Bytes of indexes kept. The shard asked for last stays, whatever its size.
    """

    def __init__(self, *, max_descriptors: int = MAX_DESCRIPTORS, max_index_bytes: int = MAX_INDEX_BYTES) -> None:
        self.max_descriptors = max_descriptors
        self.max_index_bytes = max_index_bytes
        self._lock = threading.RLock()
        self._shards: OrderedDict[ShardSource, OpenShard] = OrderedDict()  # the most recently used last
        self._with_descriptor: OrderedDict[OpenShard, None] = OrderedDict()  # of these, in the same order
        self._opening: dict[ShardSource, threading.Lock] = {}
        self._index_bytes = 0
        self._abandoned: list[OpenShard] = []

    def __len__(self) -> int:
        return len(self._shards)

    def __repr__(self) -> str:
        return f"OpenShards({len(self)} shards, {len(self._with_descriptor)} descriptors, {self._index_bytes} bytes)"

    def get(self, source: ShardSource) -> OpenShard:
        """The open shard of `source`, opened now if it must be; threads that ask for the same one wait for it.

        Raises:
            SparseVideoError: The shard is missing, cannot be read, or is no video.
        """
        while True:
            version = source.version()
            with self._lock:
                known = self._known(source, version)
                if known is not None:
                    return known
                gate = self._opening.setdefault(source, threading.Lock())
            with gate:
                with self._lock:
                    known = self._known(source, version)
                if known is not None:
                    return known
                try:
                    opened = _open(source, version)
                    if source.version() != version:  # it was replaced while it was indexed
                        opened.shard.close()
                        continue
                    with self._lock:
                        self._keep(source, opened)
                    return opened
                finally:
                    with self._lock:
                        if self._opening.get(source) is gate:
                            del self._opening[source]

    @contextmanager
    def use(self, opened: OpenShard) -> Iterator[_core.Shard]:
        """The shard, which keeps its descriptor for the length of a `with` block."""
        with self._lock:
            opened.users += 1
            if opened.kept:
                self._with_descriptor[opened] = None
                self._with_descriptor.move_to_end(opened)
        try:
            yield opened.shard
        finally:
            with self._lock:
                opened.users -= 1
                if not opened.kept:
                    self.give_back(opened)
                self._bound_descriptors()

    def give_back(self, opened: OpenShard) -> None:
        """Close the shard's descriptor unless a call is using it; its index stays."""
        with self._lock:
            if opened.users == 0:
                self._with_descriptor.pop(opened, None)
                opened.shard.close()

    def clear(self) -> None:
        """Forget every shard, as in a new process."""
        with self._lock:
            for source in list(self._shards):
                self._forget(source)

    def _known(self, source: ShardSource, version: _Version) -> OpenShard | None:
        opened = self._shards.get(source)
        if opened is None or opened.version != version:
            return None
        self._shards.move_to_end(source)
        return opened

    def _keep(self, source: ShardSource, opened: OpenShard) -> None:
        if source in self._shards:
            self._forget(source)  # as it was before it changed
        self._shards[source] = opened
        opened.kept = True
        self._index_bytes += opened.nbytes
        if source.open is None:
            self._with_descriptor[opened] = None
        while self._index_bytes > self.max_index_bytes and len(self._shards) > 1:
            self._forget(next(iter(self._shards)))
        self._bound_descriptors()

    def _forget(self, source: ShardSource) -> None:
        opened = self._shards.pop(source)
        opened.kept = False
        self._index_bytes -= opened.nbytes
        self.give_back(opened)

    def _bound_descriptors(self) -> None:
        excess = len(self._with_descriptor) - self.max_descriptors
        if excess > 0:
            idle = [opened for opened in self._with_descriptor if opened.users == 0]
            for opened in idle[:excess]:
                self.give_back(opened)

    def before_fork(self) -> None:
        """Let no other thread be in the middle of a change."""
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Keep what was idle. What another thread was using, or Daft reads, may hold locks that nobody frees here."""
        self._lock = threading.RLock()
        self._opening = {}
        for source, opened in list(self._shards.items()):
            if opened.users or source.open is not None:
                self._shards.pop(source)
                self._with_descriptor.pop(opened, None)
                self._index_bytes -= opened.nbytes
                opened.kept = False
                self._abandoned.append(opened)  # never destroyed


open_shards = OpenShards()
"""The shards of this process."""

os.register_at_fork(
    before=open_shards.before_fork,
    after_in_parent=open_shards.after_fork_in_parent,
    after_in_child=open_shards.after_fork_in_child,
)


def open_anew(source: ShardSource) -> OpenShard:
    """A shard that is indexed now, whatever is open or lies beside it; the caller's own.

    Raises:
        SparseVideoError: As `OpenShards.get`.
    """
    return _open_with(None, source, source.version())


def _is_local(path: str) -> bool:
    return "://" not in path or path.startswith("file://")


def _local_path(path: str) -> str:
    return str(Path(path.removeprefix("file://")).absolute())  # Daft decodes no %20 in a file URL either


def _open(source: ShardSource, version: _Version) -> OpenShard:
    """A shard with the index that was given or lies beside it, or else indexed now."""
    if source.index is not None:
        return _open_with(place_in(source.index, source.path), source, version)
    for place in places_of(source.path) if source.open is None else ():
        try:
            return _open_with(place, source, version)
        except IndexFileError as error:
            warnings.warn(f"{error}; {source.path} is indexed anew", IndexFileWarning, stacklevel=2)
    return _open_with(None, source, version)


def _open_with(place: Place | None, source: ShardSource, version: _Version) -> OpenShard:
    if source.open is None:
        return OpenShard.of(source.path, name=source.path, version=version, place=place)
    file = source.open()
    try:
        return OpenShard.of(file, name=source.path, version=version, place=place)
    except SparseVideoError:
        file.close()
        raise
    except Exception as error:  # of the storage layer, which raises many kinds
        file.close()
        raise ShardReadError(f"{source.path} cannot be read: {error}", shard=source.path) from error


def _open_file(file: daft.File) -> BinaryIO:
    """A `daft.File` as a binary file object that fetches little per seek."""
    try:
        opened = file.open(buffer_size=REMOTE_READ_BYTES)
        opened.__enter__()
    except FileNotFoundError:
        raise ShardNotFoundError(f"there is no file {file.path}", shard=file.path) from None
    except Exception as error:  # as above
        raise ShardReadError(f"{file.path} cannot be opened: {error}", shard=file.path) from error
    return cast(BinaryIO, opened)
