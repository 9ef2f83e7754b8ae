# SPDX-License-Identifier: Apache-2.0
"""Exact sparse frames of video, for Daft."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daft_sparsevideo import errors
from daft_sparsevideo.anchors import AnchorCacheUse, anchor_cache_use, set_anchor_cache
from daft_sparsevideo.frames import DecodeStats, FrameBatch, VideoDecoder, VideoMetadata
from daft_sparsevideo.threads import set_thread_budget, thread_budget

if TYPE_CHECKING:
    from daft_sparsevideo.expressions import decode_frames

__all__ = [
    "AnchorCacheUse",
    "DecodeStats",
    "FrameBatch",
    "VideoDecoder",
    "VideoMetadata",
    "anchor_cache_use",
    "decode_frames",
    "errors",
    "set_anchor_cache",
    "set_thread_budget",
    "thread_budget",
]


def __getattr__(name: str) -> Any:
    if name == "decode_frames":  # imports Daft, which a VideoDecoder does without
        from daft_sparsevideo.expressions import decode_frames

        return decode_frames
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
