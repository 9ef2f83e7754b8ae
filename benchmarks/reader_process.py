# SPDX-License-Identifier: Apache-2.0
"""A reader in a process of its own: some of them leave threads at work that would be charged to whoever comes next."""

from __future__ import annotations

import hashlib
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING

from benchmarks.cpu_clock import Cost, measured
from benchmarks.frame_readers import PROJECT, READERS, FrameReader, Frames, forget_shards

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Self

    from benchmarks.request_patterns import Batch

Digests = list[bytes]
"""One for every frame of a batch, camera after camera: equal digests are equal pixels."""


class ReaderProcess:
    """One reader of `READERS`, which decodes batches and measures itself; a context manager.

    Args:
        name: A key of `READERS`.
        fps: Frames a second of the shards.
        num_threads: Decoder threads.

    """

    def __init__(self, name: str, *, fps: float, num_threads: int) -> None:
        """Start the process."""
        self.name = name
        self._pool = ProcessPoolExecutor(
            max_workers=1,
            mp_context=get_context("spawn"),
            initializer=_start,
            initargs=(name, fps, num_threads),
        )

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self._pool.shutdown()

    def failure(self, shard: Path) -> str | None:
        """Decode the first frame of a shard, which pays for the imports; tell why that failed, or None."""
        return self._pool.submit(_failure, shard).result()

    def cold(self, batch: Batch) -> tuple[Digests, Cost]:
        """Decode a batch from shards opened anew."""
        return self._pool.submit(_cold, batch).result()

    def warm(self, batch: Batch) -> tuple[Digests, Cost]:
        """Decode a batch from shards that stay open; the first time they are opened before the clock starts."""
        return self._pool.submit(_warm, batch).result()


# What follows runs in the process.

_name: str
_open: Callable[[Path], FrameReader]
_opened: dict[Path, FrameReader] = {}


def _start(name: str, fps: float, num_threads: int) -> None:
    global _name, _open  # noqa: PLW0603 - a worker process has nothing else to keep its state in
    _name = name
    _open = partial(READERS[name], fps=fps, num_threads=num_threads)


def _failure(shard: Path) -> str | None:
    try:
        reader = _open(shard)
        reader.frames_at([0])
        reader.close()
    except Exception as error:  # noqa: BLE001 - a peer may fail in any way of its own; the report says how
        return f"{type(error).__name__}: {error}".strip().splitlines()[0][:120]
    return None


def _decode_cold(batch: Batch) -> list[Frames]:
    decoded = []
    for shard, frames in batch.shard_frames():
        reader = _open(shard)
        decoded.append(reader.frames_at(frames))
        reader.close()
    return decoded


def _decode_warm(batch: Batch) -> list[Frames]:
    return [_opened[shard].frames_at(frames) for shard, frames in batch.shard_frames()]


def _cold(batch: Batch) -> tuple[Digests, Cost]:
    if _name == PROJECT:
        forget_shards()
    return _digested(*measured(partial(_decode_cold, batch)))


def _warm(batch: Batch) -> tuple[Digests, Cost]:
    for shard, _ in batch.shard_frames():
        if shard not in _opened:
            _opened[shard] = _open(shard)
    return _digested(*measured(partial(_decode_warm, batch)))


def _digested(decoded: list[Frames], cost: Cost) -> tuple[Digests, Cost]:
    return [hashlib.blake2b(frame, digest_size=16).digest() for frames in decoded for frame in frames], cost
