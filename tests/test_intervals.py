# SPDX-License-Identifier: Apache-2.0
"""Anchors stand where what moves asks for them, and at cuts; and finding out costs a bounded number of frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daft_sparsevideo import shard_encoding
from daft_sparsevideo.ddra import encoder_module
from daft_sparsevideo.intervals import SAMPLE_FRAMES, CutDetector, section_bounds
from ddra_shards import Graph
from encoding import encode
from reencoded import reencode
from scenes import Picture, draw, draw_scene

SIZE = (160, 128)


def still(frames: int) -> Iterator[Picture]:
    """One picture, and a little of the sensor's noise."""
    picture = draw("mixed", 0, *SIZE).astype(np.int16)
    for number in range(frames):
        noise = np.random.default_rng(number).normal(0, 1.0, (SIZE[1], SIZE[0], 1)).round().astype(np.int16)
        yield np.clip(picture + noise, 0, 255).astype(np.uint8)


def fast(frames: int) -> Iterator[Picture]:
    """A view that turns by many pixels a frame: what is seen has left it before long."""
    scenery = draw("mixed", 0, SIZE[0] + 11 * frames, SIZE[1])
    for number in range(frames):
        yield np.ascontiguousarray(scenery[:, 11 * number : 11 * number + SIZE[0]])


def anchors_of(path: Path) -> list[int]:
    return [frame for frame, references in enumerate(Graph.of(path).references) if not references]


@pytest.mark.parametrize("codec", ["hevc", "h264"])
def test_what_stands_still_gets_longer_intervals_than_what_moves_fast(tmp_path: Path, codec: str) -> None:
    chosen = []
    for scene in (still, fast):
        path = encode(tmp_path / f"{scene.__name__}.mp4", scene(100), params="crf=16")
        report = reencode(path, tmp_path / "after.mp4", codec=codec, interval="auto")
        (section,) = report["intervals"]
        assert section["frame"] == 0
        chosen.append(section["interval"])
    assert chosen[0] >= 16
    assert chosen[1] <= 8


def test_each_stretch_has_its_own_interval(tmp_path: Path) -> None:
    path = encode(tmp_path / "before.mp4", [*still(256), *fast(256)], params="crf=16", options={"preset": "veryfast"})
    report = reencode(path, tmp_path / "after.mp4", interval="auto")
    assert [one["frame"] for one in report["intervals"]] == [0, 256]
    assert report["intervals"][0]["interval"] > report["intervals"][1]["interval"]
    anchors = anchors_of(tmp_path / "after.mp4")
    assert 256 in anchors
    for one, stop in zip(report["intervals"], (256, 512), strict=True):
        inside = [anchor for anchor in anchors if one["frame"] <= anchor < stop]
        assert inside == list(range(one["frame"], stop, one["interval"]))


@pytest.mark.parametrize("codec", ["hevc", "h264"])
def test_first_frame_after_a_cut_is_an_anchor(tmp_path: Path, codec: str) -> None:
    pictures = [*still(37), *(np.ascontiguousarray(255 - picture[::-1]) for picture in still(30))]
    path = encode(tmp_path / "before.mp4", pictures, params="crf=16")
    report = reencode(path, tmp_path / "after.mp4", codec=codec, interval="auto")
    interval = report["intervals"][0]["interval"]
    assert anchors_of(tmp_path / "after.mp4") == [*range(0, 37, interval), *range(37, 67, interval)]
    graph = Graph.of(tmp_path / "after.mp4")
    assert graph.closure(37) == {37}


def found_in(pictures: Iterable[Picture]) -> list[int]:
    cuts = CutDetector()
    for number, picture in enumerate(pictures):
        cuts.look(number, picture.mean(axis=2).astype(np.uint8))
    return cuts.found


def test_cuts_are_found_and_nothing_else() -> None:
    assert found_in(draw_scene("mixed", 37, *SIZE)) == []
    assert found_in(draw_scene("fades", 100, *SIZE)) == []
    assert found_in(still(50)) == []
    assert found_in(
        [*draw_scene("mixed", 30, *SIZE), *(255 - picture for picture in draw_scene("mixed", 30, *SIZE))]
    ) == [30]


def test_a_view_that_moves_fast_has_no_cuts() -> None:
    """Every frame changes as much as a cut changes a slow scene."""
    assert found_in(fast(100)) == []
    assert found_in([*draw_scene("mixed", 20, *SIZE), *fast(100)]) == [20]


def test_a_flash_costs_two_anchors_at_most() -> None:
    pictures = list(draw_scene("mixed", 30, *SIZE))
    pictures[12] = np.full_like(pictures[12], 255)
    assert set(found_in(pictures)) <= {12, 13}
    assert 12 in found_in(pictures)


def test_ten_bits_are_seen_as_eight() -> None:
    eight, ten = CutDetector(), CutDetector()
    for number, picture in enumerate([*still(10), *fast(10)]):
        luma = picture.mean(axis=2).astype(np.uint8)
        eight.look(number, luma)
        ten.look(number, luma.astype(np.uint16) * 4)
    assert eight.found == ten.found


@pytest.mark.parametrize("lengths", [[1], [5, 1, 2], [40, 60], [300], [520]])
def test_trials_take_a_bounded_number_of_frames(
    tmp_path: Path, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three encodes of a sample of each section at a quarter of the pixels, and one more of a shard."""
    trials: list[tuple[int, int]] = []
    module = encoder_module()

    class Spy:
        def __getattr__(self, name: str) -> Any:
            return getattr(module, name)

        def trial_encode(self, settings: Any, frames: list[Any], types: str) -> Any:
            if frames[0][0].shape != (64, 64):  # by which the preset is checked
                trials.append((len(frames), frames[0][0].size))
            return module.trial_encode(settings, frames, types)

    monkeypatch.setattr(shard_encoding, "encoder_module", Spy)
    pictures = draw_scene("still", sum(lengths), *SIZE)
    path = encode(tmp_path / "before.mp4", pictures, options={"preset": "ultrafast"})
    begins = np.cumsum([0, *lengths[:-1]]) / 30
    reencode(path, tmp_path / "after.mp4", interval="auto", episodes=begins.tolist())
    sections = [stop - start for length in lengths for start, stop in section_bounds(length)]
    samples = [min(section, SAMPLE_FRAMES) for section in sections]
    assert sum(frames for frames, _ in trials) <= 3 * sum(samples) + max(samples)
    assert all(pixels <= SIZE[0] * SIZE[1] // 4 for _, pixels in trials)
    trials.clear()
    reencode(path, tmp_path / "after.mp4", interval=8, episodes=begins.tolist())
    assert trials == []


@pytest.mark.parametrize("num_frames", [1, 2, 31, 100, 383, 384, 385, 640, 641, 10_000])
def test_sections_are_the_whole_episode_and_begin_at_whole_intervals(num_frames: int) -> None:
    bounds = section_bounds(num_frames)
    assert [bounds[0][0], bounds[-1][1]] == [0, num_frames]
    assert all(one[1] == other[0] for one, other in pairwise(bounds))
    assert all(start % 32 == 0 and start < stop <= start + 400 for start, stop in bounds)
