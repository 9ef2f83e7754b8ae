# SPDX-License-Identifier: Apache-2.0
"""`explain_decode` and the counts of a process, held against what decoding really takes."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import daft
import numpy as np
import pytest
from daft import col

from daft_sparsevideo import (
    VideoDecoder,
    _core,
    decode_frames,
    decode_stats,
    errors,
    explain_decode,
    reset_decode_stats,
)
from daft_sparsevideo.open_shards import open_shards
from encoding import encode
from scenes import draw_scene
from small_clip import Clip, make_clip


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> list[Clip]:
    folder = tmp_path_factory.mktemp("explain")
    return [
        make_clip(folder / "top.mp4", frames=80, params="keyint=30:bframes=3"),
        make_clip(folder / "wrist.mp4", frames=40, params="keyint=40:bframes=2", rate=20),
    ]


@pytest.fixture(autouse=True)
def fresh_process() -> None:
    open_shards.clear()
    reset_decode_stats()


@pytest.fixture
def no_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("something was decoded")

    real = _core.Shard

    class Watched:
        decode = refuse

        def __init__(self, source: Any, *, name: str = "") -> None:
            self._shard = real(source, name=name)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._shard, name)

    monkeypatch.setattr(_core, "Shard", Watched)


def explained(rows: dict[str, list[Any]], **options: Any) -> list[dict[str, Any]]:
    frame = daft.from_pydict(rows).into_batches(1000)
    explain = explain_decode(col("shard"), col("offset"), col("timestamp"), batch_size=1000, **options)
    cells: list[dict[str, Any]] = frame.select(explain).to_pydict()["explain"]
    return cells


def random_rows(clips: list[Clip], seed: int, count: int = 40) -> tuple[dict[str, list[Any]], list[tuple[Clip, int]]]:
    chance = np.random.default_rng(seed)
    chosen = [(clip, int(chance.integers(len(clip.frames)))) for clip in clips for _ in range(count // len(clips))]
    chosen = [chosen[k] for k in chance.permutation(len(chosen))]
    return {
        "shard": [clip.name for clip, _ in chosen],
        "offset": [0.0] * len(chosen),
        "timestamp": [number / clip.fps for clip, number in chosen],
    }, chosen


@pytest.mark.usefixtures("no_decoding")
def test_rows_tell_what_each_frame_alone_takes_and_nothing_is_decoded(clips: list[Clip]) -> None:
    rows, chosen = random_rows(clips, 4)
    for (clip, number), cell in zip(chosen, explained(rows), strict=True):
        plan = VideoDecoder(clip.path).plan_at([number])
        assert (cell["frame"], cell["pictures"], cell["bytes"]) == (number, plan.reconstructed, plan.bytes_read)
        assert cell["pts_s"] == pytest.approx(number / clip.fps)
        assert (cell["sparse"], cell["reason"]) == (True, None)


@pytest.mark.parametrize("seed", range(5))
def test_segments_are_those_of_the_real_decode(clips: list[Clip], seed: int) -> None:
    rows, chosen = random_rows(clips, seed, 4 + 6 * seed)
    cells = explained(rows)
    for clip in clips:
        of_clip = [(number, cell) for (other, number), cell in zip(chosen, cells, strict=True) if other is clip]
        plan = _core.Shard(clip.name).plan(np.array([number for number, _ in of_clip]))
        segments = {cell["segment"] for _, cell in of_clip}
        assert segments == {segment.start for segment in plan.segments}
        stats = VideoDecoder(clip.path).get_frames_at([number for number, _ in of_clip]).stats
        assert stats.segments == len(segments)
        assert stats.reconstructed <= sum(cell["pictures"] for _, cell in of_clip)
        for number, cell in of_clip:
            alone = VideoDecoder(clip.path).get_frames_at([number]).stats
            assert cell["pictures"] == alone.reconstructed
            assert cell["bytes"] <= alone.bytes_read, "small gaps between pictures are read along"


def test_video_without_a_graph_says_why_it_is_not_sparse(tmp_path: Path) -> None:
    path = encode(tmp_path / "old.mp4", draw_scene("mixed", 20, 96, 64), codec="mpeg4", options={"g": "10"})
    cells = explained({"shard": [str(path)] * 2, "offset": [0.0] * 2, "timestamp": [0.1, 0.5]})
    for number, cell in zip((3, 15), cells, strict=True):
        assert (cell["frame"], cell["sparse"]) == (number, False)
        assert cell["reason"] == _core.Shard(str(path)).index.fallback_reason != ""
        assert cell["pictures"] == VideoDecoder(path).get_frames_at([number]).stats.reconstructed


def test_rows_that_fail_or_are_null_are_null(clips: list[Clip], tmp_path: Path) -> None:
    top = clips[0].name
    rows: dict[str, list[Any]] = {
        "shard": [top, None, str(tmp_path / "gone.mp4"), top, top],
        "offset": [0.0] * 5,
        "timestamp": [0.1, 0.1, 0.1, 99.0, None],
    }
    cells = explained(rows, on_error="null")
    assert [cell is None for cell in cells] == [False, True, True, True, True]
    with pytest.raises(errors.FrameOutOfRangeError, match=r"no frame at 99\.000000 s"):
        explained(rows)
    inside = {name: values[:1] for name, values in rows.items()}
    with pytest.raises(errors.FrameOutOfRangeError, match="outside its episode"):
        explained(inside, end=0.1)


def test_empty_batches_keep_the_type(clips: list[Clip]) -> None:
    rows = daft.from_pydict({"t": [0.0]}).where(col("t") > 1).select(explain_decode(clips[0].name, 0.0, col("t")))
    assert rows.to_pydict() == {"explain": []}
    assert rows.to_arrow().schema == rows.schema().to_pyarrow_schema()


# ---- counts of the process


def test_counts_of_a_query_are_those_of_its_batches(clips: list[Clip]) -> None:
    rows, chosen = random_rows(clips, 9)
    frame = daft.from_pydict(rows).into_batches(1000)
    frame.select(decode_frames(col("shard"), col("offset"), col("timestamp"), batch_size=1000)).collect()
    stats = decode_stats()
    plans = [VideoDecoder(clip.path).plan_at([number for other, number in chosen if other is clip]) for clip in clips]
    assert (stats.requested, stats.unique) == (40, sum(plan.unique for plan in plans))
    for name in ("reconstructed", "state_only", "dropped", "segments"):
        assert getattr(stats, name) == sum(getattr(plan, name) for plan in plans), name
    assert (stats.shards_opened, stats.fallbacks) == (2, 0)
    assert stats.bytes_read >= sum(plan.bytes_read for plan in plans) > 0
    assert stats.decode_amplification == stats.reconstructed / stats.unique


def test_decoders_and_threads_count_together(clips: list[Clip]) -> None:
    def work(number: int) -> int:
        return VideoDecoder(clips[0].path).get_frames_at([number, number]).stats.reconstructed

    with ThreadPoolExecutor(8) as pool:
        reconstructed = sum(pool.map(work, range(64)))
    stats = decode_stats()
    assert (stats.requested, stats.unique, stats.reconstructed) == (128, 64, reconstructed)
    assert stats.shards_opened == 1
    VideoDecoder(clips[0].path).plan_at([5])
    assert decode_stats() == stats, "a plan decodes nothing"
    reset_decode_stats()
    assert decode_stats().requested == decode_stats().shards_opened == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12 on fork beside threads
def test_forked_process_counts_from_zero(clips: list[Clip]) -> None:
    VideoDecoder(clips[0].path).get_frames_at([3])
    before = decode_stats()
    child = os.fork()
    if child == 0:
        fresh = decode_stats().requested == 0
        VideoDecoder(clips[0].path).get_frames_at([3, 4])
        os._exit(0 if fresh and decode_stats().requested == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert decode_stats() == before
