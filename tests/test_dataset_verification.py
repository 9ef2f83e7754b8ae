# SPDX-License-Identifier: Apache-2.0
"""`lerobot.verify`: each kind of trouble is found and named, and nothing is found where all is well."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from daft_sparsevideo import lerobot
from encoding import encode
from lerobot_dataset import FPS, HEIGHT, TOP, WIDTH, WRIST, Plan, write_dataset
from scenes import numbered

SHARD = f"videos/{TOP}/chunk-000/file-000.mp4"
DATA = "data/chunk-000/file-000.parquet"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "dataset", Plan())


def change_rows(dataset: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(dataset / DATA)), dataset / DATA)


@pytest.mark.parametrize("version", ["v2.0", "v2.1", "v3.0"])
def test_a_whole_dataset_has_no_problems(tmp_path: Path, version: str) -> None:
    places = {TOP: [(0, 0), (0, 1), (0, 1)], WRIST: [(0, 0)] * 3}
    dataset = write_dataset(tmp_path / "dataset", Plan(version=version, lengths=(9, 1, 12), videos=places))  # type: ignore[arg-type]
    found = lerobot.verify(dataset, decode=True)
    assert found.problems == ()
    assert found
    rows = found.shards.to_pylist()
    assert len(rows) == (3 if version == "v3.0" else 6)
    assert all(row["frames"] == row["rows"] and row["codec"] == "h264" and row["drift_s"] < 1e-5 for row in rows)
    assert all(row["closure_max"] >= 1 for row in rows)


def test_a_missing_video_is_found(dataset: Path) -> None:
    (dataset / SHARD).unlink()
    found = lerobot.verify(dataset)
    assert len(found.problems) == 1
    assert SHARD in found.problems[0]
    assert not found


def test_a_cut_video_is_found(dataset: Path) -> None:
    data = (dataset / SHARD).read_bytes()
    (dataset / SHARD).write_bytes(data[: len(data) // 2])
    assert SHARD in lerobot.verify(dataset).problems[0]


def test_damage_inside_pictures_is_found_by_decoding(dataset: Path) -> None:
    data = bytearray((dataset / SHARD).read_bytes())
    middle = data.index(b"mdat") + (len(data) - data.index(b"mdat")) // 2
    data[middle : middle + 40] = bytes(40)
    (dataset / SHARD).write_bytes(bytes(data))
    assert any(SHARD in problem for problem in lerobot.verify(dataset, decode=True).problems)


def test_a_video_with_too_few_frames_is_found(dataset: Path) -> None:
    encode(dataset / SHARD, [numbered(n, WIDTH, HEIGHT) for n in range(19)], rate=FPS)
    assert lerobot.verify(dataset).problems == (f"{SHARD}: episode 1 has 2 of 12 rows without a frame of their own",)


def test_a_video_with_too_many_frames_is_found(dataset: Path) -> None:
    encode(dataset / SHARD, [numbered(n, WIDTH, HEIGHT) for n in range(24)], rate=FPS)
    assert lerobot.verify(dataset).problems == (f"{SHARD}: 3 of 24 frames belong to no row",)


def test_rows_that_were_lost_are_found(dataset: Path) -> None:
    change_rows(dataset, lambda rows: rows.slice(0, 20))
    assert [problem.split(": ")[1] for problem in lerobot.verify(dataset).problems] == [
        "1 of 21 frames belong to no row"
    ] * 2


def test_times_that_drift_are_found(dataset: Path) -> None:
    def late(rows: pa.Table) -> pa.Table:
        at = rows.column_names.index("timestamp")
        return rows.set_column(at, "timestamp", pc.multiply(rows["timestamp"], pa.scalar(1.01, pa.float32())))

    change_rows(dataset, late)
    problems = lerobot.verify(dataset).problems
    assert problems[0] == f"{SHARD}: episode 0 has a frame that is 0.008000 s from its row's time"


def test_rows_that_share_a_frame_are_found(dataset: Path) -> None:
    def squeezed(rows: pa.Table) -> pa.Table:
        at = rows.column_names.index("timestamp")
        return rows.set_column(at, "timestamp", pc.multiply(rows["timestamp"], pa.scalar(0.5, pa.float32())))

    change_rows(dataset, squeezed)
    assert "4 of 9 rows without a frame of their own" in lerobot.verify(dataset).problems[0]


def test_codecs_that_differ_are_found(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "dataset", Plan(videos={TOP: [(0, 0), (0, 1)]}))
    pictures = [numbered(n, WIDTH, HEIGHT) for n in range(12)]
    encode(dataset / f"videos/{TOP}/chunk-000/file-001.mp4", pictures, codec="libx265", rate=FPS)
    assert lerobot.verify(dataset).problems == (f"{TOP}: its videos are of different codecs: 1 h264, 1 hevc",)


def test_a_codec_that_info_does_not_tell_is_found(dataset: Path) -> None:
    info = json.loads((dataset / "meta/info.json").read_text())
    info["features"][TOP]["info"] = {"video.codec": "hevc"}
    (dataset / "meta/info.json").write_text(json.dumps(info))
    assert lerobot.verify(dataset).problems == (f"{TOP}: info.json says hevc, but its videos are h264",)


def test_closures_are_held_to_a_bound(dataset: Path) -> None:
    most = max(row["closure_max"] for row in lerobot.verify(dataset).shards.to_pylist())
    assert lerobot.verify(dataset, closure=most)
    problems = lerobot.verify(dataset, closure=2).problems
    assert problems[0] == f"{SHARD}: a frame takes {most} pictures, more than 2"
    with pytest.raises(ValueError, match="closure"):
        lerobot.verify(dataset, closure=0)


def test_a_dataset_that_was_encoded_anew_is_held_to_its_promise(tmp_path: Path, dataset: Path) -> None:
    pytest.importorskip("daft_sparsevideo._encoder", reason="built without the encoder")
    target = tmp_path / "target"
    lerobot.reencode(dataset, target, preset="ultrafast", interval=4)
    assert lerobot.verify(target)
    (target / SHARD).write_bytes((dataset / SHARD).read_bytes())
    problems = lerobot.verify(target).problems
    assert any("pictures, more than 3" in problem for problem in problems)
    assert any("info.json says hevc" in problem for problem in problems)


def test_what_was_left_over_is_found(dataset: Path) -> None:
    (dataset / f"{SHARD}.partial").write_bytes(b"half")
    other = f"videos/{TOP}/chunk-000/file-007.mp4"
    (dataset / other).write_bytes((dataset / SHARD).read_bytes())
    assert lerobot.verify(dataset).problems == (
        f"{SHARD}.partial: was never finished",
        f"{other}: no episode lies in it",
    )
