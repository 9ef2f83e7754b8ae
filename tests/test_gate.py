# SPDX-License-Identifier: Apache-2.0
"""No shard passes the gate that has other frames, times or closures than it should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daft_sparsevideo import _core, shard_encoding
from daft_sparsevideo.ddra import ddra_frame_types
from daft_sparsevideo.errors import FrameDecodeError, GateError
from daft_sparsevideo.gate import check_written, closure_sizes
from ddra_shards import TICKS, Graph, evenly, write_shard
from encoding import encode
from reencoded import leftovers, reencode
from scenes import draw_scene

FRAMES = 20


@pytest.fixture(scope="module", params=["hevc", "h264"])
def shard(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gate") / "shard.mp4"
    return write_shard(path, request.param, evenly([ddra_frame_types(FRAMES, 6, closure=4)]), reference_b=True)


def check(path: Path, **changed: Any) -> Any:
    asked: dict[str, Any] = {"pts": np.arange(FRAMES) * TICKS, "time_base": (1, 15360), "closure": 4}
    return check_written(str(path), name="the shard", **(asked | changed))


def test_closures_are_those_of_the_graph(shard: Path) -> None:
    graph = Graph.of(shard)
    sizes = [len(graph.closure(frame)) for frame in range(FRAMES)]
    found = check(shard)
    assert (found.largest, found.mean) == (max(sizes), pytest.approx(np.mean(sizes)))
    assert sizes[found.largest_frame] == max(sizes)
    assert closure_sizes(_core.Shard(str(shard))) == found


def test_same_times_in_another_unit_pass(shard: Path) -> None:
    check(shard, pts=np.arange(FRAMES), time_base=(TICKS, 15360))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"pts": np.arange(FRAMES - 1) * TICKS}, "has 20 frames instead of 19"),
        ({"pts": np.arange(FRAMES + 1) * TICKS}, "has 20 frames instead of 21"),
        ({"pts": np.arange(FRAMES) * TICKS + (np.arange(FRAMES) == 7)}, "not at the times"),
        ({"pts": np.arange(FRAMES) * TICKS + 1}, "not at the times"),
        ({"time_base": (1, 15361)}, "not at the times"),
        ({"closure": 3}, "takes 4 pictures, more than 3"),
    ],
)
def test_another_shard_does_not_pass(shard: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(GateError, match=message) as raised:
        check(shard, **changed)
    assert raised.value.shard == "the shard"
    assert shard.exists(), "deleting it is not the gate's business"


def test_shard_without_a_graph_does_not_pass(tmp_path: Path) -> None:
    path = encode(tmp_path / "shard.mkv", draw_scene("mixed", 5, 96, 64), codec="ffv1")
    with pytest.raises(Exception, match="the shard"):
        check(path)


def test_usual_shard_does_not_pass(tmp_path: Path) -> None:
    path = encode(tmp_path / "shard.mp4", draw_scene("mixed", FRAMES, 96, 64), params="bframes=3:ref=4")
    with pytest.raises(GateError, match="pictures, more than 4"):
        check(path, pts=np.arange(FRAMES), time_base=(1, 30))


@pytest.mark.parametrize("closure", [3, 4])
def test_encoder_that_does_not_do_as_told_is_found_out(
    tmp_path: Path, closure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = encode(tmp_path / "before.mp4", draw_scene("mixed", FRAMES, 96, 64))
    monkeypatch.setattr(shard_encoding, "ddra_frame_types", lambda count, *_, **__: "I" + "P" * (count - 1))
    report = reencode(path, tmp_path / "after.mp4", closure=closure, on_error="null")
    assert report["error"].startswith("GateError: ")
    assert f"takes 20 pictures, more than {closure}" in report["error"]
    assert "after.mp4" in report["error"]
    assert leftovers(tmp_path) == ["before.mp4"]


def test_shard_that_is_damaged_on_its_way_to_the_disk_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = encode(tmp_path / "before.mp4", draw_scene("mixed", FRAMES, 96, 64))
    measure = shard_encoding._Job._measure

    def damage(job: Any) -> Any:
        data = bytearray(Path(job.path).read_bytes())
        at = data.index(b"mdat") + 400
        data[at : at + 2000] = bytes(2000)
        Path(job.path).write_bytes(data)
        return measure(job)

    monkeypatch.setattr(shard_encoding._Job, "_measure", damage)
    with pytest.raises(FrameDecodeError):
        reencode(path, tmp_path / "after.mp4", codec="h264", crf=10, num_threads=1)
    assert leftovers(tmp_path) == ["before.mp4"]
