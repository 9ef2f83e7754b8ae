# SPDX-License-Identifier: Apache-2.0
"""The anchor cache: pictures that others are predicted from, kept from one request to the next."""

from __future__ import annotations

from dataclasses import dataclass

from daft_sparsevideo import _core


@dataclass(frozen=True)
class AnchorCacheUse:
    """How much the anchor cache of this process holds.

    Attributes:
        max_bytes: The most it may hold; 0 when it is off.
        nbytes: What it holds: samples and motion of decoded pictures.

    >>> AnchorCacheUse(max_bytes=1 << 30, nbytes=0).nbytes
    0
    """

    max_bytes: int
    nbytes: int


def set_anchor_cache(max_bytes: int) -> None:
    """Keep reference pictures of recent requests, so that later requests for the same shards need not decode them.

    It pays when the same shards are asked again and again in random order, as in a shuffled epoch. It is off at first.
    Pixels are the same with and without it. One picture of 640x480 takes about 0.8 MB; the least recently used ones
    are forgotten. The cache serves this process: each worker process sets its own, and a forked one begins with an
    empty one of the same bound.

    Args:
        max_bytes: The most it may hold; 0 turns it off and forgets everything.

    Raises:
        ValueError: `max_bytes` is negative.
        TypeError: It is no whole number.

    Example:
        >>> from daft_sparsevideo import VideoDecoder
        >>> set_anchor_cache(256 << 20)
        >>> decoder = VideoDecoder(video_path)
        >>> first, again = decoder.get_frames_at([40]).stats, decoder.get_frames_at([41]).stats
        >>> again.restored > 0
        True
        >>> set_anchor_cache(0)

    """
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int):
        raise TypeError(f"max_bytes must be a whole number of bytes, not {max_bytes!r}")
    if max_bytes < 0:
        raise ValueError(f"max_bytes is {max_bytes}; it must be at least 0, which turns the cache off")
    _core.set_anchor_cache(max_bytes)


def anchor_cache_use() -> AnchorCacheUse:
    """Return how much the anchor cache holds now, and its bound.

    Example:
        >>> anchor_cache_use().max_bytes
        0

    """
    return AnchorCacheUse(max_bytes=_core.anchor_cache_capacity(), nbytes=_core.anchor_cache_nbytes())
