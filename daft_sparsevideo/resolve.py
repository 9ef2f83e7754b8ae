# SPDX-License-Identifier: Apache-2.0
"""Seconds to frame numbers, on the presentation times that the stream really has; pure numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np
import numpy.typing as npt

Match = Literal["nearest", "played"]
Seconds = npt.NDArray[np.number]  # float32 and float64 keep their own precision; integers are exact

NO_FRAME = -1
_LEAST_SLACK_S = 1e-6


def check_match(match: object) -> Match:
    """Return `match`, or raise ValueError when it is no way to choose a frame."""
    if match not in get_args(Match):
        raise ValueError(f"match is {match!r}; choose one of {', '.join(map(repr, get_args(Match)))}")
    return cast(Match, match)


def check_tolerance(tolerance_s: object) -> float | None:
    """Return `tolerance_s` as a float or None; raise TypeError or ValueError for what is no number of seconds >= 0."""
    if tolerance_s is None:
        return None
    if isinstance(tolerance_s, bool) or not isinstance(tolerance_s, (int, float, np.integer, np.floating)):
        raise TypeError(f"tolerance_s must be a number of seconds or None, not {type(tolerance_s).__name__}")
    if not tolerance_s >= 0:
        raise ValueError(f"tolerance_s is {tolerance_s}; it must be >= 0")
    return float(tolerance_s)


def seconds(ticks: npt.NDArray[np.int64], time_base: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Ticks of `time_base` (numerator, denominator) in seconds."""
    return ticks.astype(np.float64) * time_base[0] / time_base[1]


@dataclass(frozen=True, eq=False)
class FrameTimes:
    """The presentation times of a shard's frames, sorted once for any number of look-ups.

    A frame is on the screen from its own time until the next later one; the last frame until `end_s`. Times may
    repeat and need not be sorted: equal times keep the frames' order.

    Example:
        >>> times = FrameTimes.of(np.array([0, 512, 1024]), np.array([512, 512, 512]), (1, 15360))
        >>> times.begin_s, times.end_s
        (0.0, 0.1)
        >>> times.resolve(0.0, np.array([0.0, 0.034, 0.06, 0.2])).tolist()
        [0, 1, 2, -1]
    """

    frame: npt.NDArray[np.int64]  # frame numbers by time
    time_s: npt.NDArray[np.float64]  # their times, ascending
    interval_s: npt.NDArray[np.float64]  # until the next later time; > 0
    end_s: float  # where the last frame's interval ends (not inside it)
    tick_s: float  # the times are multiples of this

    @classmethod
    def of(
        cls, frame_pts: npt.NDArray[np.int64], frame_duration: npt.NDArray[np.int64], time_base: tuple[int, int]
    ) -> FrameTimes:
        """Sort the times of a stream.

        Args:
            frame_pts: Ticks of `time_base`, one per frame, at least one.
            frame_duration: Ticks; only the last shown frame's is used. 0 when it is unknown: then the
                interval before it counts, or one tick in a video of one frame.
            time_base: Seconds per tick, as (numerator, denominator).
        """
        order = np.argsort(frame_pts, kind="stable")
        ticks = frame_pts[order]
        last_ticks = int(frame_duration[order[-1]])
        later = np.searchsorted(ticks, ticks, side="right")  # position of the next later time
        distinct = np.unique(ticks)
        if last_ticks <= 0:
            last_ticks = int(distinct[-1] - distinct[-2]) if distinct.size > 1 else 1
        end = int(ticks[-1]) + last_ticks
        until = np.append(ticks, end)[later]
        numerator, denominator = time_base
        return cls(
            frame=order.astype(np.int64, copy=False),
            time_s=seconds(ticks, time_base),
            interval_s=seconds(until - ticks, time_base),
            end_s=end * numerator / denominator,
            tick_s=numerator / denominator,
        )

    @property
    def begin_s(self) -> float:
        """Time of the first shown frame."""
        return float(self.time_s[0])

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return self.frame.nbytes + self.time_s.nbytes + self.interval_s.nbytes

    def resolve(
        self,
        offset: Seconds | float,
        timestamp: Seconds | float,
        *,
        end: Seconds | float | None = None,
        match: Match = "nearest",
        tolerance_s: float | None = None,
    ) -> npt.NDArray[np.int64]:
        """The frame number for each time `offset + timestamp`.

        Args:
            offset: Seconds where the episode begins in the shard; an array or one number.
            timestamp: Seconds since then; an array or one number. The sum is taken in float64, and the rounding
                error of the narrower of both types never moves the choice by a frame.
            end: Seconds where the episode ends in the shard (not inside it). Only frames of the episode are found
                then, those in [offset, end); None (default) allows every frame of the shard.
            match: "nearest" takes the frame whose time is nearest (of two equally near the earlier one),
                "played" the one that is on the screen.
            tolerance_s: How far a time may lie from what it is matched with: from the nearest frame's time, or for
                "played" from the begin and end of the video or episode. None (default) is half of the frame's own
                interval, and inside the video every time has its frame. No tolerance reaches over an episode's end.

        Returns:
            int64 [N] frame numbers; -1 where no frame is within the tolerance, and for NaN and infinities.
        """
        moments = _Moments.of(offset, timestamp)
        if end is not None:
            found, outside = self._in_episode(moments, end, match, tolerance_s)
            return np.where(outside, NO_FRAME, found)
        position = self._position(moments, match)
        valid = moments.finite & self._within(position, moments, match, tolerance_s)
        return np.where(valid, self.frame[position], NO_FRAME)

    def resolve_padded(
        self,
        offset: Seconds | float,
        timestamp: Seconds | float,
        *,
        delta_s: npt.NDArray[np.float64] | float = 0.0,
        end: Seconds | float,
        match: Match = "nearest",
        tolerance_s: float | None = None,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The frame number for each time `offset + timestamp + delta_s`, clamped to the episode [offset, end).

        Args:
            offset: As for `resolve`; all arrays are broadcast.
            timestamp: As for `resolve`.
            delta_s: Seconds added to `timestamp`.
            end: Seconds where the episode ends in the shard; infinity for the shard's own end.
            match: As for `resolve`.
            tolerance_s: As for `resolve`, for the times inside the episode.

        Returns:
            int64 [...] frame numbers as from `resolve`, and bool [...], True where the time lies outside the
            episode and the frame is its first or last one.

        >>> times = FrameTimes.of(np.arange(10), np.ones(10, np.int64), (1, 10))
        >>> frames, is_pad = times.resolve_padded(0.2, 0.2, delta_s=np.array([-0.3, -0.1, 0.0, 0.1]), end=0.5)
        >>> frames.tolist(), is_pad.tolist()
        ([2, 3, 4, 4], [True, False, False, True])
        """
        end = np.asarray(end)
        if (unlimited := end == np.inf).any():
            end = np.where(unlimited, self.end_s, end)
        return self._in_episode(_Moments.of(offset, timestamp, delta_s), end, match, tolerance_s)

    def explain_miss(
        self,
        time_s: float,
        *,
        episode: tuple[float, float] | None = None,
        match: Match = "nearest",
        tolerance_s: float | None = None,
    ) -> str:
        """Say why `resolve` found no frame at `time_s`; `episode` is offset and end in seconds.

        >>> times = FrameTimes.of(np.array([0, 1, 2]), np.array([1, 1, 1]), (1, 10))
        >>> times.explain_miss(7.5)
        '7.500000 s is outside [0.000000, 0.300000) s by more than half a frame interval'
        >>> times.explain_miss(0.2, episode=(0.0, 0.2))
        '0.200000 s is outside its episode [0.000000, 0.200000) s'
        """
        if not np.isfinite(time_s):
            return f"{time_s} is not a time"
        span = f"[{self.begin_s:.6f}, {self.end_s:.6f}) s"
        shown_s = self.time_s
        if episode is not None:
            begin_s, end_s = episode
            named = f"its episode [{begin_s:.6f}, {end_s:.6f}) s"
            first, stop = (int(self._first_since(np.array([bound_s]))[0]) for bound_s in episode)
            if not first < stop:
                empty = "is empty: its end is a time in the shard, not a length"
                return f"{named} {empty if end_s <= begin_s else f'holds no frame of {span}'}"
            shown_s = shown_s[first:stop]
            if not shown_s[0] - self.interval_s[first] / 2 <= time_s < end_s - self.tick_s:
                return f"{time_s:.6f} s is outside {named}"
        if tolerance_s is None:
            return f"{time_s:.6f} s is outside {span} by more than half a frame interval"
        if match == "played":
            return f"{time_s:.6f} s is outside {span} by more than tolerance_s={tolerance_s:g}"
        distance_s = float(np.abs(shown_s - time_s).min())
        return f"the frame nearest to {time_s:.6f} s is {distance_s:.6f} s away, more than tolerance_s={tolerance_s:g}"

    def _position(self, moments: _Moments, match: Match) -> npt.NDArray[np.intp]:
        return self._nearest(moments.time_s) if match == "nearest" else self._played(moments.time_s, moments.slack_s)

    def _in_episode(
        self, moments: _Moments, end: Seconds | float, match: Match, tolerance_s: float | None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The episode's frame for each moment, or -1, and whether the moment lies outside the episode."""
        end = np.asarray(end)
        end_s, time_s = end.astype(np.float64), moments.time_s
        first, stop = self._first_since(moments.offset), self._first_since(end)
        holds = (first < stop) & ~np.isnan(end_s)
        first = np.minimum(first, self.time_s.size - 1)
        last = np.maximum(stop - 1, first)
        position = np.clip(self._position(moments, match), first, last)
        first_s, last_interval_s = self.time_s[first], self.interval_s[last]
        before = time_s < first_s - self.interval_s[first] / 2
        after = time_s >= end_s - np.minimum(self._bound_slack_s(end), last_interval_s / 4)
        slack_s = np.minimum(moments.slack_s, self.interval_s[position] / 4)
        if tolerance_s is None:
            near = time_s < self.end_s + last_interval_s / 2
        elif match == "nearest":
            near = np.abs(time_s - self.time_s[position]) <= tolerance_s + slack_s
        else:
            near = (time_s >= first_s - tolerance_s - slack_s) & (time_s < self.end_s + tolerance_s)
        complete = end_s < self.end_s + last_interval_s / 2  # the shard goes on until the episode's end
        valid = moments.finite & holds & np.where(before, True, np.where(after, complete, near))
        return np.where(valid, self.frame[position], NO_FRAME), before | after

    def _first_since(self, bound: Seconds) -> npt.NDArray[np.intp]:
        """Position of the first frame that is not before `bound`, whose rounding is forgiven."""
        bound_s = bound.astype(np.float64)
        following = np.searchsorted(self.time_s, bound_s, side="left")
        before = np.maximum(following - 1, 0)
        slack_s = np.minimum(self._bound_slack_s(bound), self.interval_s[before] / 4)
        reached = (following > 0) & (self.time_s[before] >= bound_s - slack_s)
        return np.where(reached, np.searchsorted(self.time_s, self.time_s[before], side="left"), following)

    def _bound_slack_s(self, bound: Seconds) -> npt.NDArray[np.float64]:
        """How far a frame's time, which the container rounds to a tick, may lie from what a column says of it."""
        return np.maximum(self.tick_s, _slack_s(np.abs(bound.astype(np.float64)), bound.dtype))

    def _nearest(self, time_s: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
        last = self.time_s.size - 1
        right = np.searchsorted(self.time_s, time_s, side="left")
        left = np.maximum(right - 1, 0)
        right = np.minimum(right, last)
        left_s, right_s = self.time_s[left], self.time_s[right]
        chosen_s = np.where(np.abs(time_s - left_s) <= np.abs(right_s - time_s), left_s, right_s)
        return np.searchsorted(self.time_s, chosen_s, side="left")  # of frames with equal times the first

    def _played(self, time_s: npt.NDArray[np.float64], slack_s: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
        last = self.time_s.size - 1
        position = np.searchsorted(self.time_s, time_s, side="right") - 1
        slack_s = np.minimum(slack_s, self.interval_s[np.maximum(position, 0)] / 4)
        following = np.minimum(position + 1, last)
        reached = self.time_s[following] <= time_s + slack_s
        position = np.where(reached, following, np.maximum(position, 0))
        return np.searchsorted(self.time_s, self.time_s[position], side="right") - 1  # of equal times the last

    def _within(
        self, position: npt.NDArray[np.intp], moments: _Moments, match: Match, tolerance_s: float | None
    ) -> npt.NDArray[np.bool_]:
        interval_s, time_s = self.interval_s[position], moments.time_s
        slack_s = np.minimum(moments.slack_s, interval_s / 4)
        if tolerance_s is not None and match == "nearest":
            return np.abs(time_s - self.time_s[position]) <= tolerance_s + slack_s
        around_s = interval_s / 2 if tolerance_s is None else np.full_like(time_s, tolerance_s)
        begin_s = self.begin_s - slack_s if match == "played" else self.begin_s
        begins = np.minimum(begin_s, self.begin_s - around_s) <= time_s
        return begins & (time_s < self.end_s + around_s)


@dataclass(frozen=True, eq=False)
class _Moments:
    """Times to find frames for."""

    offset: Seconds
    time_s: npt.NDArray[np.float64]  # any time where they are not finite
    finite: npt.NDArray[np.bool_]
    slack_s: npt.NDArray[np.float64]  # how far rounding may have moved them

    @classmethod
    def of(
        cls, offset: Seconds | float, timestamp: Seconds | float, delta_s: npt.NDArray[np.float64] | float = 0.0
    ) -> _Moments:
        offset, timestamp, delta_s = np.broadcast_arrays(np.atleast_1d(offset), timestamp, delta_s)
        with np.errstate(invalid="ignore", over="ignore"):
            time_s = offset.astype(np.float64) + timestamp.astype(np.float64) + delta_s
        finite = np.isfinite(time_s)
        time_s = np.where(finite, time_s, 0.0)
        largest = np.maximum(np.abs(offset), np.maximum(np.abs(timestamp), np.abs(time_s))).astype(np.float64)
        slack_s = _slack_s(np.where(finite, largest, 0.0), offset.dtype, timestamp.dtype)
        return cls(offset, time_s, finite, slack_s)


def _slack_s(largest: npt.NDArray[np.float64], *dtypes: np.dtype[np.number]) -> npt.NDArray[np.float64]:
    """How far the rounding of numbers of these types and of this magnitude may move their sum."""
    return np.maximum(_LEAST_SLACK_S, 8 * max(_precision(dtype) for dtype in dtypes) * largest)


def _precision(dtype: np.dtype[np.number]) -> float:
    """Relative spacing of a column's numbers; integers lose nothing beyond the sum in float64."""
    narrow = {np.dtype(kind): float(np.finfo(kind).eps) for kind in (np.float16, np.float32)}
    return narrow.get(dtype, float(np.finfo(np.float64).eps))
