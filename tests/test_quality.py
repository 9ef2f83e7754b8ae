# SPDX-License-Identifier: Apache-2.0
"""Quality that is asked for by PSNR is reached, as PyAV and numpy measure it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from daft_sparsevideo.quality import search_crf
from encoding import encode
from oracle import decode_sequentially
from reencoded import measured_db, reencode
from scenes import draw_scene

os.environ.setdefault("SVT_LOG", "1")

BELOW_DB, ABOVE_DB = -0.1001, 0.4  # in small clips PSNR goes in steps


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("quality") / "before.mp4"
    return encode(path, draw_scene("mixed", 80, 128, 96), params="crf=12")


@pytest.mark.parametrize("codec", ["hevc", "h264"])
@pytest.mark.parametrize("interval", [8, "auto"])
@pytest.mark.parametrize("psnr_db", [28, 34.5, 41])
def test_psnr_that_is_asked_for_is_reached(
    tmp_path: Path, source: Path, psnr_db: float, interval: int, codec: str
) -> None:
    options = {"codec": codec, "interval": interval, "preset": "veryfast"}  # the quickest are too coarse
    report = reencode(source, tmp_path / "after.mp4", psnr_db=psnr_db, **options)
    measured = measured_db(source, tmp_path / "after.mp4")
    assert BELOW_DB <= measured["psnr_db"] - psnr_db <= ABOVE_DB
    assert report["psnr_db"] == pytest.approx(measured["psnr_db"], abs=1e-3)


def test_crf_that_is_reported_is_the_one_of_the_file(tmp_path: Path, source: Path) -> None:
    found = reencode(source, tmp_path / "found.mp4", psnr_db=37, num_threads=1)
    reencode(source, tmp_path / "told.mp4", crf=found["crf"], num_threads=1)
    assert (tmp_path / "found.mp4").read_bytes() == (tmp_path / "told.mp4").read_bytes()


@pytest.mark.parametrize("codec", ["hevc", "h264"])
def test_psnr_of_many_episodes_of_different_kinds_is_reached(tmp_path: Path, codec: str) -> None:
    pictures = [*draw_scene("still", 40, 96, 64), *draw_scene("cuts", 30, 96, 64), *draw_scene("mixed", 20, 96, 64)]
    path = encode(tmp_path / "before.mp4", pictures, params="crf=12")
    episodes = [0.0, 5 / 30, 6 / 30, 40 / 30, 70 / 30]
    reencode(path, tmp_path / "after.mp4", codec=codec, psnr_db=36, episodes=episodes, preset="veryfast")
    assert BELOW_DB <= measured_db(path, tmp_path / "after.mp4")["psnr_db"] - 36 <= ABOVE_DB


def test_psnr_of_a_larger_clip_is_reached_exactly(tmp_path: Path) -> None:
    path = encode(tmp_path / "before.mp4", draw_scene("still", 50, 256, 192), params="crf=12")
    reencode(path, tmp_path / "after.mp4", psnr_db=36, preset="veryfast")
    assert measured_db(path, tmp_path / "after.mp4")["psnr_db"] == pytest.approx(36, abs=0.1001)


def test_less_than_the_worst_quality_is_the_worst(tmp_path: Path, source: Path) -> None:
    report = reencode(source, tmp_path / "after.mp4", psnr_db=5)
    assert report["crf"] == 51
    assert report["psnr_db"] > 5


@pytest.mark.parametrize(("codec", "crf"), [("hevc", 0), ("hevc", 0.5), ("hevc", 51), ("h264", 1), ("h264", 51)])
def test_ends_of_the_range_can_be_encoded(tmp_path: Path, source: Path, crf: float, codec: str) -> None:
    report = reencode(source, tmp_path / "after.mp4", codec=codec, crf=crf, interval="auto")
    for name, measured in measured_db(source, tmp_path / "after.mp4").items():
        assert report[name] == pytest.approx(measured, abs=1e-3)


@pytest.mark.parametrize("source_codec", ["libx264", "libx265", "libsvtav1"])
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv420p10le"])
def test_source_is_matched_by_its_own_codec(tmp_path: Path, pix_fmt: str, source_codec: str) -> None:
    """Encoding it once more with the same encoder, at the same bytes, is no better by much and no worse."""
    params = "keyint=20:log-level=error" if source_codec == "libx265" else ""
    own = {"preset": "10"} if source_codec == "libsvtav1" else {}
    path = tmp_path / "before.mp4"
    pictures = draw_scene("mixed", 40, 96, 64)
    encode(path, pictures, codec=source_codec, pix_fmt=pix_fmt, options={"crf": "24"} | own, params=params)
    report = reencode(path, tmp_path / "after.mp4", match_source=True, preset="veryfast")
    again = []  # bytes and PSNR of what this source becomes by its own encoder
    for crf in range(12, 44, 4):
        planes = [frame.to_ndarray(format="rgb24") for frame in decode_sequentially(path)]
        once_more = tmp_path / f"{crf}.mp4"
        options = {"crf": str(crf)} | own
        encode(once_more, planes, codec=source_codec, pix_fmt=pix_fmt, options=options, params=params)
        again.append((once_more.stat().st_size, measured_db(path, once_more)["psnr_db"]))
    sizes, quality_db = zip(*sorted(again), strict=True)
    matched_db = float(np.interp(path.stat().st_size, sizes, quality_db))
    assert report["psnr_db"] == pytest.approx(matched_db, abs=5)


def test_source_of_another_codec_cannot_be_matched(tmp_path: Path) -> None:
    path = encode(tmp_path / "before.mkv", draw_scene("mixed", 5, 96, 64), codec="ffv1")
    report = reencode(path, tmp_path / "after.mp4", match_source=True, on_error="null")
    assert "match_source knows h264, hevc and av1" in report["error"]


@pytest.mark.parametrize(
    "curve",
    [
        lambda crf: 55 - 0.6 * crf,
        lambda crf: 60 - 4 * math.sqrt(crf),
        lambda crf: 50 if crf < 20 else 30,
        lambda crf: 40 - 0 * crf,
        lambda crf: 50 - 0.3 * crf + 2 * math.sin(crf),
    ],
)
@pytest.mark.parametrize("target_db", [20, 35, 40, 70])
def test_search_stays_in_its_range_and_gives_the_best_it_tried(
    curve: Callable[[float], float], target_db: float
) -> None:
    tried = {}

    def psnr_at(crf: float) -> float:
        tried[crf] = curve(crf)
        return tried[crf]

    found = search_crf(psnr_at, target_db, 20, min_crf=1, tries=6, tolerance_db=0.1)
    assert all(1 <= crf <= 51 for crf in tried)
    assert len(tried) <= 6
    enough = [psnr for psnr in tried.values() if psnr >= target_db - 0.1]
    assert tried[found] >= target_db - 0.1 if enough else tried[found] == max(tried.values())
