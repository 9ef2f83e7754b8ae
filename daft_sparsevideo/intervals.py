# SPDX-License-Identifier: Apache-2.0
"""How far apart anchors stand: chosen by what trial encodes cost, and how they come out.

A long interval saves intra pictures, but its B pictures are far from what they are predicted from: the best one depends
on how much moves. An episode is cut into sections of about `SECTION_FRAMES`. Of each, `SAMPLE_FRAMES` in the middle
are encoded at half of width and height and at a quick preset: with intervals of 8 and 16, and with the next one on the
side of the better. Bytes and PSNR of a trial make one figure by the slope of the rate-distortion curve, which is
measured once a shard: that figure is the bytes at equal PSNR.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from av.video.reformatter import VideoReformatter

from daft_sparsevideo.ddra import ddra_frame_types
from daft_sparsevideo.source_video import Planes, copied_planes, planes_of

INTERVALS = (4, 8, 16, 32)
SECTION_FRAMES = 256
SAMPLE_FRAMES = 97  # whole intervals, and the anchor behind them
QUALITY_FRAMES = 33  # in the middle of a sample, in full size

QUICK_PRESET = {"hevc": "ultrafast", "h264": "superfast"}

# Bytes at equal PSNR as trials tell over those of whole episodes at "medium", relative to an interval of 8: means over
# five episodes of a static and a moving camera at crf 20, from which they differ by 4 % at most.
_TRIAL_BIAS = {
    "hevc": {4: 0.986, 8: 1.0, 16: 1.10, 32: 1.15},
    "h264": {4: 1.024, 8: 1.0, 16: 1.04, 32: 1.03},
}

_LEAST_SIDE = 64  # pixels of a trial encode

_CUT_LEVELS = 12.0  # of 255, that the mean luma sample changes at a cut
_CUT_RATIO = 4.0  # and by how much more than at the frames before it
_CUT_MEMORY = 8  # frames
_CUT_STEP = 8  # one of as many rows and columns is looked at

# How much of the squared error of Y, Cb and Cr there is in R, G and B (mean of the three), by the matrix of BT.601
# in the limited range: enough to compare structures of one encoder.
_RGB_ERROR_OF_PLANES = np.array([1.164**2, (0.392**2 + 2.017**2) / 3, (1.596**2 + 0.813**2) / 3])


class TrialEncode(Protocol):
    """Bytes and mean squared errors of Y, Cb and Cr, [N] and [N, 3], of frames with such types."""

    def __call__(  # noqa: D102 - as the class says
        self, frames: list[Planes], types: str, *, crf_step: float
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]: ...


@dataclass(frozen=True)
class EpisodeStructure:
    """Where the anchors of one episode stand.

    Attributes:
        sections: First frame and interval of each section, the first of which begins with frame 0.
        cuts: Frames that are anchors too.
    """

    sections: tuple[tuple[int, int], ...]
    cuts: tuple[int, ...] = ()


@dataclass
class IntervalChooser:
    """Takes the frames of a shard in order, and chooses the structure of each episode.

    Args:
        encode: The trial encode.
        codec: "hevc" or "h264".
        fixed: An interval that is chosen already, without cuts; None: choose.
        keeps: Whether frames for trials of quality are wanted.
    """

    encode: TrialEncode
    codec: str
    fixed: int | None = None
    keeps: bool = False
    _reformatter: VideoReformatter = field(default_factory=VideoReformatter, init=False)
    _slope: float | None = field(default=None, init=False)  # of the logarithm of bytes over PSNR

    def choose(
        self, frames: Iterator[Any], num_frames: int, keep: Callable[[list[Planes], int], None]
    ) -> EpisodeStructure:
        """Choose the structure of the next episode.

        Args:
            frames: Iterator of `av.VideoFrame`, from which the episode's are taken.
            num_frames: Frames of the episode.
            keep: Is given the planes of some frames of each section, and its interval.
        """
        cuts = CutDetector()
        sections: list[tuple[int, int]] = []
        for start, stop in section_bounds(num_frames):
            small: list[Planes] = []
            whole: list[Planes] = []
            trial, quality = (middle(start, stop, count) for count in (SAMPLE_FRAMES, QUALITY_FRAMES))
            for number in range(start, stop):
                frame = next(frames)
                cuts.look(number, planes_of(frame)[0])
                if number in trial and self.fixed is None:
                    small.append(copied_planes(self._halved(frame)))
                if number in quality and self.keeps:
                    whole.append(copied_planes(frame))
            interval = self.fixed or self._best(small)
            keep(whole, interval)
            if not sections or sections[-1][1] != interval:
                sections.append((start, interval))
        return EpisodeStructure(tuple(sections), () if self.fixed else tuple(cuts.found))

    def _halved(self, frame: Any) -> Any:
        width, height = half_size(frame.width, frame.height)
        return self._reformatter.reformat(frame, width=width, height=height, interpolation="AREA")

    def _best(self, sample: list[Planes]) -> int:
        if len(sample) <= INTERVALS[0]:
            return INTERVALS[0]
        scores = {interval: self._score(sample, interval) for interval in INTERVALS[1:3]}
        beside = INTERVALS[3] if scores[INTERVALS[2]] < scores[INTERVALS[1]] else INTERVALS[0]
        scores[beside] = self._score(sample, beside)
        return min(scores, key=scores.__getitem__)

    def _score(self, sample: list[Planes], interval: int) -> float:
        """The logarithm of the bytes at equal PSNR, but for a constant."""
        log_bytes, psnr = self._measure(sample, interval, 0.0)
        if self._slope is None:
            finer_bytes, finer_psnr = self._measure(sample, interval, -4.0)
            self._slope = max(0.05, (finer_bytes - log_bytes) / max(finer_psnr - psnr, 0.1))
        return log_bytes - self._slope * psnr - math.log(_TRIAL_BIAS[self.codec][interval])

    def _measure(self, sample: list[Planes], interval: int, crf_step: float) -> tuple[float, float]:
        size_bytes, errors = self.encode(sample, ddra_frame_types(len(sample), interval), crf_step=crf_step)
        counted = (
            len(sample) - 1 if len(sample) == SAMPLE_FRAMES else len(sample)
        )  # the last one opens the next interval
        rgb_error = errors[:counted] @ _RGB_ERROR_OF_PLANES
        psnr_db = 10 * np.log10(255**2 / np.maximum(rgb_error, 255**2 / 1e10))
        return math.log(size_bytes[:counted].sum()), float(psnr_db.mean())


@dataclass
class CutDetector:
    """Finds frames that have little to do with the one before."""

    found: list[int] = field(default_factory=list)
    _last: npt.NDArray[np.floating] | None = None
    _changes: deque[float] = field(default_factory=lambda: deque(maxlen=_CUT_MEMORY))

    def look(self, number: int, luma: npt.NDArray[Any]) -> None:
        """Take the next frame's luma."""
        levels = luma[::_CUT_STEP, ::_CUT_STEP] / np.float32(4 if luma.dtype == np.uint16 else 1)
        if self._last is not None:
            change = float(np.abs(levels - self._last).mean())
            # The change at a cut stays, alone: what comes next may move fast, and is not one cut after another.
            if self._changes and change > _CUT_LEVELS and change > _CUT_RATIO * float(np.median(self._changes)):
                self.found.append(number)
                self._changes.clear()
            self._changes.append(change)
        self._last = levels


def section_bounds(num_frames: int) -> list[tuple[int, int]]:
    """Sections of an episode, as even as whole intervals of 32 allow.

    >>> section_bounds(100), section_bounds(640)
    ([(0, 100)], [(0, 320), (320, 640)])
    """
    count = max(1, round(num_frames / SECTION_FRAMES))
    step = INTERVALS[-1]
    bounds = [round(num_frames * part / count / step) * step for part in range(count)] + [num_frames]
    return list(pairwise(bounds))


def middle(start: int, stop: int, count: int) -> range:
    """The frames in the middle of a section that stand for all of it.

    >>> middle(0, 100, 33), middle(40, 50, 33)
    (range(33, 66), range(40, 50))
    """
    first = max(start, (start + stop - count) // 2)
    return range(first, min(stop, first + count))


def half_size(width: int, height: int) -> tuple[int, int]:
    """Half of each side, even; the size itself where that would be tiny.

    >>> half_size(642, 480), half_size(64, 48)
    ((320, 240), (64, 48))
    """
    small = width // 4 * 2, height // 4 * 2
    return small if min(small) >= _LEAST_SIDE else (width, height)
