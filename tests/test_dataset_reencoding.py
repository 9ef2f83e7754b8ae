# SPDX-License-Identifier: Apache-2.0
"""`lerobot.reencode`: a dataset comes out as it was but for its videos, whatever ends the run in between."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import av
import daft.datasets.lerobot as daft_lerobot
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest
from daft import col

from daft_sparsevideo import VideoDecoder, lerobot
from daft_sparsevideo.errors import FrameDecodeError, ShardFormatError
from lerobot_dataset import FPS, TOP, WRIST, Plan, write_dataset

pytest.importorskip("daft_sparsevideo._encoder", reason="built without the encoder")

QUICK: dict[str, Any] = {"preset": "ultrafast", "interval": 4, "crf": 12.0}
SEVERAL = {TOP: [(0, 0), (0, 0), (0, 1)], WRIST: [(0, 0), (0, 1), (1, 0)]}
LENGTHS = (9, 1, 12)


def tree(root: Path) -> dict[str, bytes]:
    """Every file of a folder, by its path in it."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def dataset_of(root: Path, version: Any = "v3.0") -> Path:
    return write_dataset(root, Plan(version=version, lengths=LENGTHS, videos=SEVERAL))


def pictures_by_time(path: Path) -> dict[float, npt.NDArray[np.uint8]]:
    with av.open(str(path)) as file:
        return {round(float(frame.time), 6): frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)}


@pytest.mark.parametrize("version", ["v2.0", "v2.1", "v3.0"])
def test_everything_but_videos_and_their_codec_is_as_it_was(tmp_path: Path, version: str) -> None:
    source, target = dataset_of(tmp_path / "source", version), tmp_path / "target"
    before = tree(source)
    report = lerobot.reencode(source, target, **QUICK).to_pylist()
    assert tree(source) == before, "the source is only read"
    after = tree(target)
    made = {name for name in after if name.startswith("meta/sparsevideo/")}
    assert set(after) - made == set(before)
    videos = {name for name in before if name.endswith(".mp4")}
    assert {row["shard"] for row in report} == videos
    for name, data in before.items():
        assert (after[name] == data) == (name not in videos and name != "meta/info.json"), name
    told, original = json.loads(after["meta/info.json"]), json.loads(before["meta/info.json"])
    for key in (TOP, WRIST):
        about = told["features"][key].pop("info")
        assert about["video.codec"] == "hevc"
        assert about["sparsevideo.reencoded"]["interval"] == 4
    assert told == original
    for name in videos:
        assert [*pictures_by_time(target / name)] == [*pictures_by_time(source / name)], "times are bit-equal"


def test_daft_reads_the_result_as_it_read_the_source(tmp_path: Path) -> None:
    source, target = dataset_of(tmp_path / "source"), tmp_path / "target"
    lerobot.reencode(source, target, **QUICK)
    read = [daft_lerobot.read(str(root), load_video_frames=True).sort("index").to_pydict() for root in (source, target)]
    for name in read[0]:
        if name not in (TOP, WRIST):
            assert read[0][name] == read[1][name] or name.endswith("/video")
    for key in (TOP, WRIST):
        for one, other in zip(read[0][key], read[1][key], strict=True):
            assert np.mean((np.asarray(one).astype(float) - np.asarray(other)) ** 2) < 40, "about 32 dB"


def test_the_frame_at_every_rows_time_is_the_rows_by_lerobots_own_rule(tmp_path: Path) -> None:
    source, target = dataset_of(tmp_path / "source"), tmp_path / "target"
    lerobot.reencode(source, target, **QUICK)
    episodes = pq.read_table(target / "meta/episodes").to_pylist()
    for key in (TOP, WRIST):
        for row in episodes:
            place = f"chunk-{row[f'videos/{key}/chunk_index']:03d}/file-{row[f'videos/{key}/file_index']:03d}.mp4"
            shown = np.array([*pictures_by_time(target / "videos" / key / place)])
            asked = row[f"videos/{key}/from_timestamp"] + np.arange(row["length"]) / FPS
            assert np.abs(shown[:, None] - asked).min(axis=0).max() < 1e-4


def test_no_frame_depends_on_another_episode(tmp_path: Path) -> None:
    source, target = dataset_of(tmp_path / "source"), tmp_path / "target"
    lerobot.reencode(source, target, **QUICK)
    decoder = VideoDecoder(target / "videos" / TOP / "chunk-000/file-000.mp4")
    for frame, most in ((8, 3), (9, 1)):  # the first episode's last frame, and the only one of the second
        assert decoder.plan_at([frame]).reconstructed <= most


def test_index_files_are_written_along_and_used(tmp_path: Path) -> None:
    source, target = dataset_of(tmp_path / "source"), tmp_path / "target"
    lerobot.build_index(source)
    lerobot.reencode(source, target, **QUICK)
    assert sorted(path.name for path in (target / "meta/sparsevideo").glob("*.parquet")) == [
        f"{TOP}.parquet",
        f"{WRIST}.parquet",
    ]
    frames = lerobot.read(target, load_video_frames=True).where(col("index").is_in([0, 9, 21])).sort("index")
    assert [picture is not None for picture in frames.to_pydict()[WRIST]] == [True] * 3


def test_the_report_is_of_every_video(tmp_path: Path) -> None:
    source, target = dataset_of(tmp_path / "source"), tmp_path / "target"
    rows = lerobot.reencode(source, target, **QUICK).to_pylist()
    assert sum(row["frames"] for row in rows) == 2 * sum(LENGTHS)
    for row in rows:
        assert row["bytes_before"] == (source / row["shard"]).stat().st_size
        assert row["bytes_after"] == (target / row["shard"]).stat().st_size
        assert row["closure_max"] <= 3
        assert row["error"] is None


def test_a_camera_that_is_not_chosen_is_copied(tmp_path: Path) -> None:
    source, target = dataset_of(tmp_path / "source"), tmp_path / "target"
    lerobot.reencode(source, target, cameras=[WRIST], **QUICK)
    before, after = tree(source), tree(target)
    for name in before:
        if name.startswith("videos/"):
            assert (before[name] == after[name]) == (TOP in name)
    features = json.loads(after["meta/info.json"])["features"]
    assert "info" in features[WRIST]
    assert "info" not in features[TOP]
    assert lerobot.verify(target).problems == ()


def test_a_video_that_fails_leaves_the_others_and_is_tried_again(tmp_path: Path) -> None:
    source, target = dataset_of(tmp_path / "source"), tmp_path / "target"
    bad = "videos/observation.images.wrist/chunk-000/file-001.mp4"
    whole = (source / bad).read_bytes()
    (source / bad).write_bytes(whole[: len(whole) // 2])
    rows = {row["shard"]: row for row in lerobot.reencode(source, target, on_error="null", **QUICK).to_pylist()}
    assert [name for name, row in rows.items() if row["error"] is not None] == [bad]
    assert "file-001.mp4" in rows[bad]["error"]
    assert not (target / bad).exists()
    assert not (target / "meta/info.json").exists(), "it is no dataset yet"
    with pytest.raises((FrameDecodeError, ShardFormatError), match=r"file-001\.mp4"):
        lerobot.reencode(source, target, **QUICK)
    written = {name: (target / name).stat().st_mtime_ns for name in rows if name != bad}
    (source / bad).write_bytes(whole)
    again = lerobot.reencode(source, target, **QUICK).to_pylist()
    assert [row["error"] for row in again] == [None] * len(again)
    assert {name: (target / name).stat().st_mtime_ns for name in written} == written, "what was done is not done again"
    assert lerobot.verify(target, decode=True).problems == ()


def test_a_finished_dataset_is_left_as_it_is(tmp_path: Path) -> None:
    source, target = dataset_of(tmp_path / "source"), tmp_path / "target"
    one = lerobot.reencode(source, target, **QUICK).to_pylist()
    before = tree(target)
    assert lerobot.reencode(source, target, num_threads=1, **QUICK).to_pylist() == one
    assert tree(target) == before


def test_a_video_that_was_changed_or_lost_since_is_written_again(tmp_path: Path) -> None:
    source, target = dataset_of(tmp_path / "source"), tmp_path / "target"
    rows = lerobot.reencode(source, target, **QUICK).to_pylist()
    (target / rows[0]["shard"]).unlink()
    (target / rows[1]["shard"]).write_bytes(b"short")
    lerobot.reencode(source, target, **QUICK)
    assert lerobot.verify(target).problems == ()


@pytest.mark.parametrize("moment", range(4))
def test_a_killed_run_goes_on_where_it_was(tmp_path: Path, moment: int) -> None:
    source, target = dataset_of(tmp_path / "source"), tmp_path / "target"
    program = "import sys\nfrom daft_sparsevideo import lerobot\nlerobot.reencode(sys.argv[1], sys.argv[2], preset='slow', interval=4)"
    command = [sys.executable, "-c", program, str(source), str(target)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as run:  # noqa: S603 - this very interpreter
        videos = target / "videos"
        deadline = time.monotonic() + 60
        while len([*videos.rglob("*.mp4*")]) < moment and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        run.send_signal(signal.SIGKILL)
    done = {path: path.stat().st_mtime_ns for path in videos.rglob("*.mp4")}
    for path in done:  # whatever has its name is whole
        VideoDecoder(path).get_frames_at([0, -1])
    lerobot.reencode(source, target, preset="slow", interval=4)
    assert not [*target.rglob("*.partial")]
    assert lerobot.verify(target, decode=True).problems == ()


def test_other_settings_or_another_source_need_another_folder(tmp_path: Path) -> None:
    source, target = dataset_of(tmp_path / "source"), tmp_path / "target"
    lerobot.reencode(source, target, **QUICK)
    before = tree(target)
    with pytest.raises(FileExistsError, match="another source or settings"):
        lerobot.reencode(source, target, **(QUICK | {"crf": 30.0}))
    with pytest.raises(FileExistsError, match="another source or settings"):
        lerobot.reencode(dataset_of(tmp_path / "other"), target, **QUICK)
    assert tree(target) == before


def test_a_folder_with_something_else_is_not_touched(tmp_path: Path) -> None:
    source, target = dataset_of(tmp_path / "source"), tmp_path / "target"
    target.mkdir()
    (target / "diary.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="not empty"):
        lerobot.reencode(source, target, **QUICK)
    assert tree(target) == {"diary.txt": b"mine"}
    with pytest.raises(NotADirectoryError):
        lerobot.reencode(source, target / "diary.txt", **QUICK)


def test_source_and_target_are_two_folders(tmp_path: Path) -> None:
    source = dataset_of(tmp_path / "source")
    (tmp_path / "link").symlink_to(source)
    before = tree(source)
    for target in (source, tmp_path / "link", source / "new", tmp_path):
        with pytest.raises(ValueError, match="two folders"):
            lerobot.reencode(source, target, **QUICK)
    assert tree(source) == before


def test_two_runs_do_not_write_one_folder(tmp_path: Path) -> None:
    source, target = dataset_of(tmp_path / "source"), tmp_path / "target"
    lerobot.reencode(source, target, **QUICK)
    with (target / "meta/sparsevideo/reencode.json").open() as state:
        fcntl.flock(state, fcntl.LOCK_EX)
        with pytest.raises(FileExistsError, match="another run"):
            lerobot.reencode(source, target, **QUICK)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"cameras": ["observation.images.gone"]}, ValueError, "has no videos"),
        ({"cameras": TOP}, TypeError, "list of keys"),
        ({"codec": "vp9"}, ValueError, "codec"),
        ({"interval": 65}, ValueError, "at most 64"),
        ({"interval": True}, TypeError, "whole number"),
        ({"closure": 5}, ValueError, "3 or 4"),
        ({"crf": 20.0, "psnr_db": 40.0}, ValueError, "one of crf"),
        ({"crf": 52.0}, ValueError, r"\[0, 51\]"),
        ({"preset": "sleepy"}, ValueError, "no preset sleepy"),
        ({"on_error": "ignore"}, ValueError, "on_error"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    source, target = dataset_of(tmp_path / "source"), tmp_path / "target"
    with pytest.raises(error, match=message):
        lerobot.reencode(source, target, **options)
    assert not target.exists()


def test_a_dataset_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no LeRobot dataset"):
        lerobot.reencode(tmp_path / "gone", tmp_path / "target")


def test_what_a_download_leaves_beside_a_dataset_is_not_copied(tmp_path: Path) -> None:
    source, target = dataset_of(tmp_path / "source"), tmp_path / "target"
    (source / ".cache/huggingface").mkdir(parents=True)
    (source / ".cache/huggingface/lock").write_text("")
    (source / "README.md").write_text("about")
    lerobot.reencode(source, target, **QUICK)
    assert not (target / ".cache").exists()
    assert (target / "README.md").read_text() == "about"
    assert os.access(target / "README.md", os.W_OK)
