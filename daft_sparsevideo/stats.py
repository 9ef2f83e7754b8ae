# SPDX-License-Identifier: Apache-2.0
"""Counts of what decoding took: for one request, and added up over a process."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, fields
from typing import Self

from daft_sparsevideo import _core


@dataclass(frozen=True)
class DecodeStats:
    """What a request took, or would take.

    Attributes:
        requested: Frames asked for.
        unique: Different frames among them.
        reconstructed: Pictures whose pixels were decoded: the frames, and what they are predicted from.
        state_only: Pictures of which only the header was parsed.
        dropped: Pictures between those that the decoder never saw.
        restored: Pictures taken from the anchor cache, see `set_anchor_cache`.
        segments: Runs of pictures, each decoded from a start of its own.
        bytes_read: Bytes of pictures read.
        fallbacks: Times a complaint of the decoder sent a segment to a fuller decode.

    >>> DecodeStats(requested=20, unique=16, reconstructed=40).decode_amplification
    2.5
    """

    requested: int = 0
    unique: int = 0
    reconstructed: int = 0
    state_only: int = 0
    dropped: int = 0
    restored: int = 0
    segments: int = 0
    bytes_read: int = 0
    fallbacks: int = 0

    @classmethod
    def of(cls, stats: _core.DecodeStats) -> Self:
        """The same counts as the core's."""
        return cls(**{field.name: getattr(stats, field.name) for field in fields(DecodeStats)})

    @property
    def decode_amplification(self) -> float:
        """Pictures decoded for each different frame; 0 when none was asked for."""
        return self.reconstructed / self.unique if self.unique else 0.0


@dataclass(frozen=True)
class ProcessStats(DecodeStats):
    """What all requests of a process took together.

    A frame counts in `unique` once for each request (a batch of rows, a call of a `VideoDecoder`) that holds it.

    Attributes:
        shards_opened: Times a shard was opened and indexed.

    >>> ProcessStats(unique=16, reconstructed=40, shards_opened=2).decode_amplification
    2.5
    """

    shards_opened: int = 0


class _Totals:
    def __init__(self) -> None:
        self._begin_anew()
        os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()  # the parent's may be held by a thread that the child does not have
        self._counts = dict.fromkeys((field.name for field in fields(ProcessStats)), 0)

    def add(self, **counts: int) -> None:
        with self._lock:
            for name, count in counts.items():
                self._counts[name] += count

    def stats(self) -> ProcessStats:
        with self._lock:
            return ProcessStats(**self._counts)

    def reset(self) -> None:
        with self._lock:
            self._counts = dict.fromkeys(self._counts, 0)


_totals = _Totals()


def count_decode(stats: _core.DecodeStats) -> DecodeStats:
    """Add a request to the process's counts, and return its own."""
    counts = DecodeStats.of(stats)
    _totals.add(**vars(counts))
    return counts


def count_opened_shard() -> None:
    """Add an opened shard to the process's counts."""
    _totals.add(shards_opened=1)


def decode_stats() -> ProcessStats:
    """What was decoded in this process, by Daft queries and `VideoDecoder`s on all threads, since the last reset.

    After a query on Daft's native runner these are the counts of the query. Forked and remote workers count for
    themselves, from zero.

    Returns:
        The counts, added up over all requests.

    Example:
        >>> from daft_sparsevideo import VideoDecoder
        >>> reset_decode_stats()
        >>> batch = VideoDecoder(video_path).get_frames_at([0, 0, 45])
        >>> stats = decode_stats()
        >>> stats.requested, stats.unique, stats.reconstructed == batch.stats.reconstructed
        (3, 2, True)
    """
    return _totals.stats()


def reset_decode_stats() -> None:
    """Count from zero again.

    Example:
        >>> reset_decode_stats()
        >>> decode_stats().requested
        0
    """
    _totals.reset()
