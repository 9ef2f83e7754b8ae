# SPDX-License-Identifier: Apache-2.0
"""What the project promises, and by how much a measured figure keeps it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Target:
    """A bound on one figure."""

    figure: str
    bound: float
    side: Literal["at least", "at most"]
    unit: str


@dataclass(frozen=True)
class Verdict:
    """A figure beside its target."""

    subject: str
    target: Target
    measured: float

    @property
    def met(self) -> bool:
        """Whether the figure is on the right side of the bound."""
        if self.target.side == "at least":
            return self.measured >= self.target.bound
        return self.measured <= self.target.bound

    @property
    def margin_percent(self) -> float:
        """By how much of the bound it is met (positive) or missed (negative)."""
        excess = 100 * (self.measured / self.target.bound - 1)
        return excess if self.target.side == "at least" else -excess

    def __str__(self) -> str:
        """Tell subject, figure, bound and verdict in one line."""
        target = self.target
        word = "met" if self.met else "NOT MET"
        return (
            f"{self.subject}: {target.figure} {self.measured:.3g}{target.unit}, "
            f"target {target.side} {target.bound:g}{target.unit}: {word} by {abs(self.margin_percent):.0f} %"
        )

    def to_json(self) -> dict[str, Any]:
        """Turn it into what the result files hold."""
        return {
            "says": str(self),
            "subject": self.subject,
            **asdict(self.target),
            "measured": round(self.measured, 4),
            "met": self.met,
            "margin_percent": round(self.margin_percent, 1),
        }


SPARSE_CODECS = ("h264", "hevc")
"""Codecs that have a reference graph so far: the targets speak of these."""

SPARSE_OVER_TORCHCODEC = Target("CPU of TorchCodec exact / VideoDecoder, cold", 1.9, "at least", "x")
SPARSE_OVER_PYAV = Target("CPU of PyAV / VideoDecoder, cold", 2.7, "at least", "x")
WINDOW_OVER_TORCHCODEC = Target("CPU of TorchCodec exact / VideoDecoder, cold", 1.2, "at least", "x")
RANDOM_ROWS = Target("CPU of Daft's reader / this project's", 6, "at least", "x")
CONSECUTIVE_ROWS = Target("CPU of Daft's reader / this project's", 4, "at least", "x")
SHUFFLED_ROWS = Target("CPU of Daft's reader / this project's, a shuffled epoch", 10, "at least", "x")
DAFT_OVERHEAD = Target("a frame's CPU in a query over VideoDecoder", 0.15, "at most", " ms")
STATE_ONLY = Target("a state-only picture, of a full decode of it", 1.5, "at most", " %")
LIMIT = Target("(closure x mean decode + targets x convert) / CPU used", 0.9, "at least", "")
INDEX_PASS = Target("index pass", 15, "at most", " us a picture")
CACHED_OPEN = Target("opening a shard whose index is cached", 0.3, "at most", " ms")
ANCHOR_CACHE = Target("pictures without the cache / with it", 2, "at least", "x")
TWO_CORES = Target("wall time of one core / of two", 1.8, "at least", "x")
STREAMING_MEMORY = Target("peak memory of 20,000 frames through to_arrow_iter", 600, "at most", " MB")
