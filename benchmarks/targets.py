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

LEROBOT_AV1_BYTES = "bytes of DDRA HEVC / LeRobot's AV1"
LEROBOT_AV1_BYTES_4 = "bytes of DDRA HEVC, closure 4 / LeRobot's AV1"
PAPER_HEVC_BYTES = "bytes of DDRA HEVC / the paper's setting"
PAPER_H264_BYTES = "bytes of DDRA H.264 / the paper's setting"
DDRA_BYTES = {
    "static": (
        Target(LEROBOT_AV1_BYTES, 0.32, "at most", "x"),
        Target(LEROBOT_AV1_BYTES_4, 0.28, "at most", "x"),
        Target(PAPER_HEVC_BYTES, 0.85, "at most", "x"),
        Target(PAPER_H264_BYTES, 0.75, "at most", "x"),
    ),
    "moving": (
        Target(LEROBOT_AV1_BYTES, 0.48, "at most", "x"),
        Target(LEROBOT_AV1_BYTES_4, 0.45, "at most", "x"),
        Target(PAPER_HEVC_BYTES, 0.65, "at most", "x"),
        Target(PAPER_H264_BYTES, 0.70, "at most", "x"),
    ),
}
"""At equal RGB PSNR, of a view that stands still and of one that moves."""
ENCODE_SPEED = Target("CPU of libx265 medium / the DDRA encoder, at equal PSNR", 0.8, "at least", "x")
INTERVAL_CHOICE = Target("choosing intervals, of the CPU of reencode_ddra", 25, "at most", " %")
DDRA_OVER_NATIVE = Target("CPU of TorchCodec exact on the native video / VideoDecoder", 4, "at least", "x")
DDRA_OVER_AV1 = Target("CPU of the best peer on LeRobot's AV1 / VideoDecoder", 1.2, "at least", "x")
PICTURES_ALONE = Target("most pictures that a frame takes", 3, "at most", "")
PICTURES_TOGETHER = Target("pictures a frame when 16 random ones are asked", 2.5, "at most", "")
