# SPDX-License-Identifier: Apache-2.0
"""The command `sparsevideo`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from daft_sparsevideo.cli import main
from lerobot_dataset import TOP, Plan, write_dataset

QUICK = ["--preset", "ultrafast", "--interval", "4"]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "dataset", Plan())


def test_a_dataset_is_written_anew_and_verified(
    tmp_path: Path, dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("daft_sparsevideo._encoder", reason="built without the encoder")
    target = str(tmp_path / "target")
    assert main(["reencode", str(dataset), target, *QUICK]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3
    assert "21 frames" in printed[0]
    assert "at most 3 pictures a frame, interval 4" in printed[0]
    assert main(["verify", target, "--decode"]) == 0
    assert capsys.readouterr().out == (
        "2 videos of 2 cameras, hevc, 42 frames, at most 3 pictures a frame: no problems\n"
    )
    assert main(["reencode", str(dataset), target, *QUICK, "--json"]) == 0
    assert [row["frames"] for row in json.loads(capsys.readouterr().out)] == [21, 21]


def test_datasets_and_videos_are_indexed(tmp_path: Path, dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    video = dataset / f"videos/{TOP}/chunk-000/file-000.mp4"
    assert main(["index", str(dataset)]) == 0
    assert capsys.readouterr().out.count(".parquet: ") == 2
    assert (dataset / f"meta/sparsevideo/{TOP}.parquet").exists()
    assert main(["index", str(video), "--output", str(tmp_path / "one.parquet"), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert written == [{"index": str(tmp_path / "one.parquet"), "bytes": (tmp_path / "one.parquet").stat().st_size}]
    assert main(["index", str(video)]) == 0
    assert video.with_name("file-000.mp4.sparsevideo.parquet").exists()
    assert main(["index", str(dataset), str(video), "--output", str(tmp_path / "two")]) == 1


def test_a_video_that_fails_is_told_and_the_exit_code_is_1(
    tmp_path: Path, dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("daft_sparsevideo._encoder", reason="built without the encoder")
    (dataset / f"videos/{TOP}/chunk-000/file-000.mp4").write_bytes(b"")
    assert main(["reencode", str(dataset), str(tmp_path / "target"), *QUICK]) == 1
    printed = capsys.readouterr()
    assert "ShardFormatError" in printed.out
    assert "1 of 2 videos failed; the same command tries them again" in printed.err


def test_problems_are_printed_and_the_exit_code_is_1(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (dataset / f"videos/{TOP}/chunk-000/file-000.mp4").unlink()
    assert main(["verify", str(dataset)]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert "file-000.mp4" in printed[0]
    assert printed[-1].endswith(": 1 problems")
    assert main(["verify", str(dataset), "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 1


def test_an_error_is_one_line_that_names_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path / "gone")]) == 1
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 1
    assert "no LeRobot dataset" in printed[0]


@pytest.mark.parametrize(
    "arguments", [[], ["reencode"], ["verify"], ["index"], ["dance"], ["reencode", "a", "b", "--interval", "x"]]
)
def test_a_wrong_command_is_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: sparsevideo" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["reencode", "verify", "index"])
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert f"example: sparsevideo {command}" in capsys.readouterr().out


def test_the_command_is_installed(dataset: Path) -> None:
    script = Path(sys.executable).with_name("sparsevideo")
    if not script.exists():
        pytest.skip(f"{script} is absent")
    done = subprocess.run([script, "verify", dataset], capture_output=True, text=True, check=True)  # noqa: S603
    assert "no problems" in done.stdout
