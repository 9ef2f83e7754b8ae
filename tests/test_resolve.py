# SPDX-License-Identifier: Apache-2.0
"""Seconds to frames, held against exact arithmetic on fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daft_sparsevideo.resolve import NO_FRAME, FrameTimes, Match, check_match, check_tolerance

TIME_BASES = [(1, 15360), (1, 90000), (1, 1000), (1001, 30000), (1, 30), (1, 1000000)]
MATCHES: list[Match] = ["nearest", "played"]


def steady(count: int, fps: Fraction, time_base: tuple[int, int] = (1, 90000), start: int = 0) -> FrameTimes:
    """Times of a video of constant rate, rounded to the ticks of `time_base`."""
    tick = Fraction(*time_base)
    pts = np.array([start + round(i / fps / tick) for i in range(count + 1)], np.int64)
    return FrameTimes.of(pts[:-1], np.diff(pts), time_base)


@st.composite
def any_video(draw: st.DrawFn) -> tuple[list[int], list[int], tuple[int, int]]:
    """pts that may repeat and may be unsorted, with durations and a time base."""
    pts = draw(st.lists(st.integers(-50_000, 50_000_000), min_size=1, max_size=30))
    last = draw(st.integers(0, 5000))
    if draw(st.booleans()):
        pts.sort()
    return pts, [last] * len(pts), draw(st.sampled_from(TIME_BASES))


def exact_span(pts: list[int], durations: list[int], tick: Fraction) -> tuple[Fraction, Fraction]:
    """First time and end of a video by the rule in words."""
    last = max(range(len(pts)), key=lambda i: (pts[i], i))
    distinct = sorted(set(pts))
    ticks = durations[last] or (distinct[-1] - distinct[-2] if len(distinct) > 1 else 1)
    return distinct[0] * tick, (distinct[-1] + ticks) * tick


def exact_interval(pts: list[int], end: Fraction, frame: int, tick: Fraction) -> Fraction:
    """Seconds until the next later time."""
    later = [p for p in pts if p > pts[frame]]
    return (min(later) * tick if later else end) - pts[frame] * tick


@given(any_video(), st.data())
def test_nearest_frame_is_the_one_that_exact_arithmetic_finds(
    video: tuple[list[int], list[int], tuple[int, int]], data: st.DataObject
) -> None:
    pts, durations, time_base = video
    tick = Fraction(*time_base)
    begin, end = exact_span(pts, durations, tick)
    reach = max((end - begin) / 4, tick)
    time_s = data.draw(st.floats(float(begin - reach), float(end + reach)))
    [frame] = FrameTimes.of(np.array(pts), np.array(durations), time_base).resolve(0.0, np.array([time_s]))
    exact = Fraction(time_s)
    distances = [abs(p * tick - exact) for p in pts]
    best = distances.index(min(distances))
    noise = Fraction(1, 10**9)
    tolerance = exact_interval(pts, end, best, tick) / 2
    inside = begin - tolerance <= exact < end + tolerance
    if min(abs(exact - (begin - tolerance)), abs(exact - (end + tolerance))) < noise:
        return  # on the edge of the tolerance, where float64 may see either side
    assert (frame != NO_FRAME) == inside
    if inside:
        assert distances[frame] - distances[best] < noise
        assert pts.index(pts[frame]) == frame, "of equal times the first"


@given(any_video(), st.data())
def test_played_frame_is_the_one_on_the_screen(
    video: tuple[list[int], list[int], tuple[int, int]], data: st.DataObject
) -> None:
    pts, durations, time_base = video
    tick = Fraction(*time_base)
    begin, end = exact_span(pts, durations, tick)
    time_s = data.draw(st.floats(float(begin), float(end)))
    exact = Fraction(time_s)
    if not begin <= exact < end or any(abs(p * tick - exact) < Fraction(1, 10**5) for p in pts):
        return  # edges have tests of their own
    times = FrameTimes.of(np.array(pts), np.array(durations), time_base)
    [frame] = times.resolve(0.0, np.array([time_s]), match="played")
    on_screen = max((i for i in range(len(pts)) if pts[i] * tick <= exact), key=lambda i: (pts[i], i))
    assert frame == on_screen


@given(any_video())
def test_order_of_frames_in_the_container_changes_nothing(video: tuple[list[int], list[int], tuple[int, int]]) -> None:
    pts, durations, time_base = video
    ordered = sorted(pts)
    one = FrameTimes.of(np.array(pts), np.array(durations), time_base)
    other = FrameTimes.of(np.array(ordered), np.array(durations), time_base)
    asked = np.linspace(one.begin_s - 1, one.end_s + 1, 50)
    for match in MATCHES:
        first = one.resolve(0.0, asked, match=match)
        second = other.resolve(0.0, asked, match=match)
        assert [pts[i] if i >= 0 else None for i in first] == [ordered[i] if i >= 0 else None for i in second]


@pytest.mark.parametrize("match", MATCHES)
@given(video=any_video())
def test_every_exact_time_is_its_own_frame(video: tuple[list[int], list[int], tuple[int, int]], match: Match) -> None:
    pts, durations, time_base = video
    times = FrameTimes.of(np.array(pts), np.array(durations), time_base)
    seconds = np.array([float(p * Fraction(*time_base)) for p in pts])
    for tolerance_s in (None, 0.0):
        frames = times.resolve(0.0, seconds, match=match, tolerance_s=tolerance_s)
        assert [pts[i] for i in frames] == pts


@pytest.mark.parametrize("match", MATCHES)
def test_one_tick_before_and_after_every_time(match: Match) -> None:
    times = steady(10, Fraction(30), (1, 15360))
    ticks = np.arange(10) * 512
    before, after = (ticks[1:] - 1) / 15360, (ticks + 1) / 15360
    assert times.resolve(0.0, after, match=match).tolist() == list(range(10))
    wanted = list(range(1, 10)) if match == "nearest" else list(range(9))
    assert times.resolve(0.0, before, match=match).tolist() == wanted


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fps", [Fraction(30), Fraction(30000, 1001), Fraction(50), Fraction(10)])
@pytest.mark.parametrize("match", MATCHES)
@settings(max_examples=10)
@given(lengths=st.lists(st.integers(7, 17), min_size=50, max_size=50))
def test_accumulated_offsets_never_move_the_choice(
    lengths: list[int], match: Match, fps: Fraction, dtype: type[np.floating]
) -> None:
    times = steady(sum(lengths), fps)
    offset_s, first = dtype(0), 0
    for length in lengths:
        timestamp_s = np.array([i / float(fps) for i in range(length)], dtype)
        offsets = np.full(length, offset_s, dtype)
        frames = times.resolve(offsets, timestamp_s, match=match)
        assert frames.tolist() == list(range(first, first + length))
        first += length
        offset_s = dtype(offset_s + dtype(length / float(fps)))


@pytest.mark.parametrize("match", MATCHES)
def test_float32_times_far_into_a_shard_take_the_nearest_frame(match: Match) -> None:
    count = 1000
    times = steady(count, Fraction(30), start=40_000 * 90_000)
    pts_s = (40_000 * 90_000 + np.arange(count) * 3000) / 90_000
    assert times.resolve(0.0, pts_s.astype(np.float32), match=match).tolist() == list(range(count))
    offsets = np.full(count, 40_000, np.float32)
    timestamps = (np.arange(count) / 30).astype(np.float32)
    assert times.resolve(offsets, timestamps, match=match).tolist() == list(range(count))


@pytest.mark.parametrize("match", MATCHES)
@pytest.mark.parametrize("nudge", [0.0, 1e-7, -1e-7])
def test_start_that_is_off_by_a_rounding_error_is_the_first_frame(nudge: float, match: Match) -> None:
    times = steady(30, Fraction(15), start=6006)
    start = 0.066733 + nudge
    for dtype in (np.float32, np.float64):
        assert times.resolve(dtype(start), np.zeros(1, dtype), match=match).tolist() == [0]
    above = np.nextafter(6006 / 90000, 1)
    assert times.resolve(above, np.zeros(1), match=match, tolerance_s=0.0).tolist() == [0]
    below = np.nextafter(6006 / 90000, 0)
    assert times.resolve(below, np.zeros(1), match=match, tolerance_s=0.0).tolist() == [0]


def test_past_the_last_interval_is_no_frame() -> None:
    times = steady(30, Fraction(30000, 1001))
    fps = 29.97
    asked = np.array([29 / fps, 30 / fps - 1e-6, 30 / fps, 31 / fps])
    assert times.resolve(0.0, asked).tolist() == [29, 29, 29, NO_FRAME]
    assert times.resolve(0.0, asked, match="played").tolist() == [29, 29, 29, NO_FRAME]
    asked = np.array([1.0009, 1.001, 31 / fps])  # 1.001 s is where the last frame's interval ends
    assert times.resolve(0.0, asked, match="played", tolerance_s=0.0).tolist() == [29, NO_FRAME, NO_FRAME]
    asked = np.array([29 / fps, 30 / fps - 1e-6, 30 / fps, 31 / fps])
    assert times.resolve(0.0, asked, tolerance_s=1.0).tolist() == [29, 29, 29, 29]


def test_tolerance_is_half_open_at_both_ends() -> None:
    times = FrameTimes.of(np.array([8, 12, 16]), np.array([4, 4, 4]), (1, 8))  # 1 s, 1.5 s, 2 s until 2.5 s
    edges = np.array([0.75, np.nextafter(0.75, 0), np.nextafter(2.75, 0), 2.75])
    for match in MATCHES:
        assert times.resolve(0.0, edges, match=match).tolist() == [0, NO_FRAME, 2, NO_FRAME]


def test_explicit_tolerance_is_a_distance_to_the_frame() -> None:
    times = FrameTimes.of(np.array([0, 10, 20]), np.array([10, 10, 10]), (1, 10))
    asked = np.array([0.1, 0.11, 0.9, 0.89, 2.1, 2.2, -0.1, -0.11])
    frames = times.resolve(0.0, asked, tolerance_s=0.1)
    assert frames.tolist() == [0, NO_FRAME, 1, NO_FRAME, 2, NO_FRAME, 0, NO_FRAME]


def test_two_equally_near_frames_give_the_earlier() -> None:
    times = FrameTimes.of(np.array([0, 2, 4]), np.array([2, 2, 2]), (1, 4))
    assert times.resolve(0.0, np.array([0.25, 0.75])).tolist() == [0, 1]


def test_no_number_is_no_frame_and_spares_its_neighbours() -> None:
    times = steady(10, Fraction(10))
    asked = np.array([0.1, math.nan, math.inf, -math.inf, 0.2])
    for match in MATCHES:
        for tolerance_s in (None, 0.1, math.inf):
            frames = times.resolve(0.0, asked, match=match, tolerance_s=tolerance_s)
            assert frames.tolist() == [1, NO_FRAME, NO_FRAME, NO_FRAME, 2]
    assert times.resolve(np.array([math.inf]), np.array([-math.inf])).tolist() == [NO_FRAME]


def test_integers_are_seconds() -> None:
    times = steady(100, Fraction(10))
    for dtype in (np.int8, np.uint16, np.int64):
        assert times.resolve(np.array([1, 2], dtype), np.array([3, 4], dtype)).tolist() == [40, 60]


def test_video_of_one_frame_without_duration_has_its_own_time() -> None:
    times = FrameTimes.of(np.array([90]), np.array([0]), (1, 90))
    assert times.resolve(0.0, np.array([1.0, 1.5])).tolist() == [0, NO_FRAME]


def test_played_slack_never_skips_a_short_frame() -> None:
    pts = np.array([0, 93_760, 93_860, 200_000])  # the second is shown for 0.1 ms
    times = FrameTimes.of(pts, np.array([0, 0, 0, 100_000]), (1, 1_000_000))
    just_before = np.array([4096.09375], np.float32)  # exact; the slack of its precision is 4 ms
    assert times.resolve(np.float32(-4096), just_before, match="played").tolist() == [1]


def test_misses_say_where_the_video_is() -> None:
    times = steady(30, Fraction(30))
    assert times.explain_miss(7.5) == "7.500000 s is outside [0.000000, 1.000000) s by more than half a frame interval"
    assert times.explain_miss(math.nan) == "nan is not a time"
    assert "0.010000 s away, more than tolerance_s=0.001" in times.explain_miss(0.11, tolerance_s=0.001)
    assert "outside [0.000000, 1.000000) s by more than tolerance_s=0.1" in times.explain_miss(
        2.0, match="played", tolerance_s=0.1
    )


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match="'nearest', 'played'"):
        check_match("closest")
    with pytest.raises(ValueError, match="must be >= 0"):
        check_tolerance(-0.1)
    with pytest.raises(ValueError, match="must be >= 0"):
        check_tolerance(math.nan)
    with pytest.raises(TypeError, match="number of seconds"):
        check_tolerance("0.1")


# ---- episodes


def episodes_of(start_s: float, dtype: type[np.floating], lengths: list[int]) -> tuple[FrameTimes, list[Any]]:
    """Back to back episodes at 30 fps from `start_s` on, as (first, stop, offset, end) with numbers of `dtype`."""
    count, first_tick = sum(lengths), round(start_s * 15360)
    pts = first_tick + np.arange(count, dtype=np.int64) * 512
    stops = np.cumsum(lengths)
    firsts = stops - lengths
    bounds = [dtype(start_s + number / 30) for number in [*firsts, count]]
    return FrameTimes.of(pts, np.full(count, 512), (1, 15360)), list(
        zip(firsts.tolist(), stops.tolist(), bounds[:-1], bounds[1:], strict=True)
    )


@pytest.mark.parametrize("match", ["nearest", "played"])
@pytest.mark.parametrize(("start_s", "dtype"), [(0.0, np.float64), (40_000.0, np.float32), (90_000.5, np.float64)])
def test_frames_stay_in_their_episode_whatever_the_rounding(
    start_s: float, dtype: type[np.floating], match: Any
) -> None:
    times, episodes = episodes_of(start_s, dtype, [9, 1, 30, 2])
    for first, stop, offset, end in episodes:
        numbers = np.arange(-3, stop - first + 3)
        timestamps = (numbers / 30).astype(dtype)
        inside = (numbers >= 0) & (numbers < stop - first)
        offsets, ends = np.full(numbers.size, offset), np.full(numbers.size, end)
        found = times.resolve(offsets, timestamps, end=ends, match=match)
        np.testing.assert_array_equal(found, np.where(inside, first + numbers, -1))
        padded, is_pad = times.resolve_padded(offsets, timestamps, end=ends, match=match)
        np.testing.assert_array_equal(padded, np.clip(first + numbers, first, stop - 1))
        np.testing.assert_array_equal(is_pad, ~inside)


@given(st.lists(st.integers(1, 40), min_size=2, max_size=5), st.data())
def test_padded_times_are_the_clamped_nearest_frames(lengths: list[int], data: st.DataObject) -> None:
    times, episodes = episodes_of(0.0, np.float64, lengths)
    first, stop, offset, end = data.draw(st.sampled_from(episodes))
    time_s = data.draw(st.floats(-2.0, 6.0))
    frames, is_pad = times.resolve_padded(offset, np.array([time_s]), end=end)
    shown = np.arange(first, stop)
    nearest = shown[np.abs(shown / 30 - (offset + time_s)).argmin()]
    assert abs(frames[0] / 30 - (offset + time_s)) == pytest.approx(abs(nearest / 30 - (offset + time_s)), abs=1e-4)
    assert first <= frames[0] < stop
    near_a_bound = min(abs(time_s + 0.5 / 30), abs(offset + time_s - end)) < 1e-4
    assert near_a_bound or is_pad[0] == (time_s < -0.5 / 30 or offset + time_s >= end)
