# SPDX-License-Identifier: Apache-2.0
"""Exact sparse frames of video, for Daft."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from daft_sparsevideo import errors
from daft_sparsevideo.anchors import AnchorCacheUse, anchor_cache_use, set_anchor_cache
from daft_sparsevideo.frames import FrameBatch, VideoDecoder, VideoMetadata
from daft_sparsevideo.stats import DecodeStats, ProcessStats, decode_stats, reset_decode_stats
from daft_sparsevideo.threads import set_thread_budget, thread_budget

if TYPE_CHECKING:
    from daft_sparsevideo import lerobot
    from daft_sparsevideo.explain import explain_decode
    from daft_sparsevideo.expressions import decode_frames, decode_windows
    from daft_sparsevideo.index_files import write_index
    from daft_sparsevideo.reencode import reencode_ddra
    from daft_sparsevideo.sql import register_sql

__all__ = [
    "AnchorCacheUse",
    "DecodeStats",
    "FrameBatch",
    "ProcessStats",
    "VideoDecoder",
    "VideoMetadata",
    "anchor_cache_use",
    "decode_frames",
    "decode_stats",
    "decode_windows",
    "errors",
    "explain_decode",
    "lerobot",
    "reencode_ddra",
    "register_sql",
    "reset_decode_stats",
    "set_anchor_cache",
    "set_thread_budget",
    "thread_budget",
    "write_index",
]

_IN_MODULE = {  # what imports Daft or pyarrow, which a VideoDecoder does without
    "decode_frames": "expressions",
    "decode_windows": "expressions",
    "explain_decode": "explain",
    "reencode_ddra": "reencode",
    "register_sql": "sql",
    "write_index": "index_files",
}


def __getattr__(name: str) -> Any:
    if name == "lerobot":
        return import_module("daft_sparsevideo.lerobot")
    if name in _IN_MODULE:
        return getattr(import_module(f"daft_sparsevideo.{_IN_MODULE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
