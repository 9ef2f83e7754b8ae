# SPDX-License-Identifier: Apache-2.0
"""Whatever goes wrong with a shard, it is told, nothing new lies about, and what was there is as it was."""

from __future__ import annotations

import os
import random
import resource
import signal
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import daft
import numpy as np
import pytest
from daft import col

import container_surgery as surgery
from daft_sparsevideo import reencode_ddra
from daft_sparsevideo.errors import (
    FrameDecodeError,
    GateError,
    ShardFormatError,
    ShardNotFoundError,
    ShardReadError,
    SparseVideoError,
)
from daft_sparsevideo.open_shards import ShardSource
from daft_sparsevideo.output_file import whole_file
from daft_sparsevideo.shard_encoding import Settings, reencode_shard
from encoding import encode
from oracle import decode_sequentially, rgb_of
from own_process import run_alone
from reencoded import QUICK, leftovers, reencode
from scenes import draw_scene

OLD = b"what was there before"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encode(tmp_path_factory.mktemp("source") / "before.mp4", draw_scene("mixed", 40, 96, 64), params="keyint=10")


def fail(source: Path | str, output: Path, kind: type[Exception], message: str, **options: Any) -> None:
    """One row alone raises; of three, the two that are well are done, and nothing is left of the bad one."""
    folder = output.parent
    output.write_bytes(OLD)
    before = {name: (folder / name).read_bytes() for name in leftovers(folder)}
    settings = Settings(**(QUICK | {name: value for name, value in options.items() if name != "episodes"}))
    with pytest.raises(kind, match=message) as raised:
        reencode_shard(ShardSource.of_path(str(source)), str(output), options.get("episodes"), settings)
    assert isinstance(raised.value, SparseVideoError)
    assert raised.value.shard in {str(source), str(output)}
    assert raised.value.shard in str(raised.value)
    report = reencode(source, output, on_error="null", **options)
    assert report["error"] == f"{type(raised.value).__name__}: {raised.value}"
    assert report["path"] == str(output)
    assert all(value is None for name, value in report.items() if name not in {"path", "error"})
    with pytest.raises(Exception, match=message):
        reencode(source, output, **options)
    assert {name: (folder / name).read_bytes() for name in leftovers(folder)} == before


def test_missing_source(tmp_path: Path) -> None:
    fail(tmp_path / "gone.mp4", tmp_path / "after.mp4", ShardNotFoundError, "there is no file")


def test_source_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "folder.mp4").mkdir()
    fail(tmp_path / "folder.mp4", tmp_path / "after.mp4", ShardReadError, "cannot be read")


@pytest.mark.parametrize("content", [b"", b"no video" * 999, b"\0" * 5000, bytes(range(256)) * 64])
def test_source_that_is_no_video(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "before.mp4").write_bytes(content)
    fail(tmp_path / "before.mp4", tmp_path / "after.mp4", ShardFormatError, "before.mp4")


def test_source_without_video(tmp_path: Path) -> None:
    path = tmp_path / "before.mp4"
    with av.open(str(path), "w") as file:
        audio = file.add_stream("aac", rate=48000)
        silence = av.AudioFrame.from_ndarray(np.zeros((2, 1024), np.float32), "fltp", "stereo")
        silence.sample_rate, silence.pts = 48000, 0
        file.mux(audio.encode(silence))
        file.mux(audio.encode(None))
    fail(path, tmp_path / "after.mp4", ShardFormatError, "has no video")


def test_source_of_odd_size(tmp_path: Path) -> None:
    odd = encode(tmp_path / "odd.mp4", draw_scene("mixed", 5, 97, 65), pix_fmt="yuv444p")
    fail(odd, tmp_path / "after.mp4", ShardFormatError, "yuv444p: only 4:2:0")
    path = encode(tmp_path / "before.mkv", draw_scene("mixed", 5, 97, 65), codec="ffv1")
    fail(path, tmp_path / "after.mp4", ShardFormatError, "97x65: 4:2:0 video of odd size")


@pytest.mark.parametrize("pix_fmt", ["yuv422p", "yuv444p10le"])
def test_source_of_another_form(tmp_path: Path, pix_fmt: str) -> None:
    path = encode(tmp_path / "before.mp4", draw_scene("mixed", 5, 96, 64), pix_fmt=pix_fmt)
    fail(path, tmp_path / "after.mp4", ShardFormatError, f"{pix_fmt}: only 4:2:0")


def test_source_of_a_codec_that_nobody_knows(tmp_path: Path, source: Path) -> None:
    path = tmp_path / "before.mp4"
    path.write_bytes(source.read_bytes().replace(b"avc1", b"xyz1"))
    fail(path, tmp_path / "after.mp4", ShardFormatError, "before.mp4")


def test_source_whose_size_changes(tmp_path: Path) -> None:
    sizes = ((96, 64), (64, 48))
    parts = [
        encode(tmp_path / f"{size}.h264", draw_scene("mixed", 6, *size), params="bframes=0:keyint=6") for size in sizes
    ]
    (tmp_path / "parts.h264").write_bytes(b"".join(part.read_bytes() for part in parts))
    with av.open(str(tmp_path / "parts.h264")) as file, av.open(str(tmp_path / "before.mkv"), "w") as out:
        copy = out.add_stream_from_template(file.streams.video[0])
        for number, packet in enumerate(packet for packet in file.demux(video=0) if packet.size):
            packet.time_base = Fraction(1, 1000)
            packet.pts = packet.dts = number * 40
            packet.stream = copy
            out.mux(packet)
    fail(tmp_path / "before.mkv", tmp_path / "after.mp4", FrameDecodeError, "is of 64x48, not 96x64")


def test_source_without_times(tmp_path: Path) -> None:
    path = encode(tmp_path / "before.h264", draw_scene("mixed", 5, 96, 64))
    fail(path, tmp_path / "after.mp4", ShardFormatError, "frames without times")


def test_source_with_times_that_repeat(tmp_path: Path) -> None:
    plain = encode(tmp_path / "plain.mkv", draw_scene("mixed", 6, 96, 64), params="bframes=0")
    path = surgery.with_pts(plain, tmp_path / "before.mkv", lambda pts: [*pts[:2], pts[3], *pts[3:]])
    fail(path, tmp_path / "after.mp4", ShardFormatError, "at the same time")


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize("kept", [0.3, 0.6, 0.9, 0.97])
def test_source_that_is_cut_short(tmp_path: Path, suffix: str, kept: float) -> None:
    options = {"movflags": "faststart"} if suffix == "mp4" else {}
    pictures = draw_scene("mixed", 40, 96, 64)
    path = encode(tmp_path / f"before.{suffix}", pictures, params="keyint=10", container_options=options)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * kept)])
    fail(path, tmp_path / "after.mp4", SparseVideoError, "before")


@pytest.mark.parametrize("codec", ["libx264", "libx265", "libsvtav1"])
def test_source_with_flipped_bytes_is_an_error_or_what_others_see(tmp_path: Path, codec: str) -> None:
    options = {"options": {"preset": "10"}} if codec == "libsvtav1" else {}
    params = {"params": "keyint=10:log-level=error"} if codec == "libx265" else {}
    sound = encode(tmp_path / "sound.mp4", draw_scene("mixed", 30, 96, 64), codec=codec, **options, **params)
    folder = tmp_path / "new"
    chance, outcomes = random.Random(3), set()
    for turn in range(25):
        data = bytearray(sound.read_bytes())
        for _ in range(chance.choice([1, 3, 10])):
            data[chance.randrange(40, len(data))] ^= 1 << chance.randrange(8)
        path = tmp_path / f"{turn}.mp4"
        path.write_bytes(data)
        report = reencode(path, folder / "after.mp4", codec="h264", on_error="null", crf=8)
        if report["error"] is None:
            seen = [rgb_of(frame) for frame in decode_sequentially(path)]
            got = [rgb_of(frame) for frame in decode_sequentially(folder / "after.mp4")]
            assert len(seen) == len(got) == report["frames"]
            assert all(np.abs(one.astype(int) - other).mean() < 8 for one, other in zip(seen, got, strict=True))
            (folder / "after.mp4").unlink()
        else:
            assert f"{turn}.mp4" in report["error"]
        outcomes.add(report["error"] is None)
        assert leftovers(folder) == []
    assert False in outcomes


def test_source_whose_tags_are_no_text(tmp_path: Path, source: Path) -> None:
    with av.open(str(source)) as file, av.open(str(tmp_path / "plain.mp4"), "w") as out:
        out.metadata["title"] = "Schrift"
        copy = out.add_stream_from_template(file.streams.video[0])
        for packet in file.demux(video=0):
            if packet.size:
                packet.stream = copy
                out.mux(packet)
    path = tmp_path / "before.mp4"
    path.write_bytes((tmp_path / "plain.mp4").read_bytes().replace(b"Schrift", b"Schr\xe4ft"))
    assert reencode(path, tmp_path / "after.mp4")["frames"] == 40


def test_path_that_no_file_can_have(tmp_path: Path, source: Path) -> None:
    for shard, output in ((f"{tmp_path}/a\0b.mp4", tmp_path / "after.mp4"), (source, f"{tmp_path}/a\0b.mp4")):
        report = reencode(shard, output, on_error="null")
        assert "Error: " in report["error"]
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    "episodes", [[-1.0], [0.0, 99.0], [float("nan")], [float("inf")], [0.0, 40 / 30 + 0.1]], ids=str
)
def test_episodes_outside_the_shard(tmp_path: Path, source: Path, episodes: list[float]) -> None:
    fail(source, tmp_path / "after.mp4", ShardFormatError, "an episode begins at", episodes=episodes)


def test_null_in_a_list_of_episodes(tmp_path: Path, source: Path) -> None:
    rows = daft.from_pydict({"episodes": [[0.0, None]]})
    report = reencode_ddra(
        str(source), output=f"{tmp_path}/after.mp4", episodes=col("episodes"), on_error="null", **QUICK
    )
    assert "an episode begins at" in rows.select(report).to_pydict()["reencoded"][0]["error"]
    assert leftovers(tmp_path) == []


def test_quality_that_cannot_be_reached(tmp_path: Path) -> None:
    path = encode(tmp_path / "before.mp4", draw_scene("mixed", 12, 96, 64), pix_fmt="yuv420p10le", params="crf=4")
    fail(path, tmp_path / "after.mp4", GateError, "is not reached", psnr_db=60.0)


@pytest.mark.parametrize("way", ["same", "relative", "dots", "symlink", "hard link", "url", "linked folder"])
def test_output_that_is_the_source_is_refused(
    tmp_path: Path, source: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "before.mp4"
    path.write_bytes(source.read_bytes())
    monkeypatch.chdir(folder)
    (tmp_path / "linked folder").symlink_to(folder)
    (tmp_path / "symlink").symlink_to(path)
    (tmp_path / "hard link").hardlink_to(path)
    output = {
        "same": str(path),
        "relative": "before.mp4",
        "dots": f"{folder}/../folder/before.mp4",
        "symlink": f"{tmp_path}/symlink",
        "hard link": f"{tmp_path}/hard link",
        "url": f"file://{path}",
        "linked folder": f"{tmp_path}/linked folder/before.mp4",
    }[way]
    before = leftovers(tmp_path)
    with pytest.raises(Exception, match="is the source itself"):
        reencode(path, output)
    assert leftovers(tmp_path) == before
    assert path.read_bytes() == source.read_bytes()
    assert (tmp_path / "symlink").is_symlink()


def test_source_that_has_the_name_of_what_is_being_written_is_refused(tmp_path: Path, source: Path) -> None:
    path = tmp_path / "after.mp4.partial"
    path.write_bytes(source.read_bytes())
    with pytest.raises(Exception, match="is the source itself"):
        reencode(path, tmp_path / "after.mp4")
    assert path.read_bytes() == source.read_bytes()
    assert leftovers(tmp_path) == ["after.mp4.partial"]


def test_link_to_another_file_is_replaced_and_the_file_stays(tmp_path: Path, source: Path) -> None:
    (tmp_path / "blob").write_bytes(OLD)
    (tmp_path / "after.mp4").symlink_to("blob")
    reencode(source, tmp_path / "after.mp4")
    assert (tmp_path / "blob").read_bytes() == OLD
    assert not (tmp_path / "after.mp4").is_symlink()


def test_link_in_the_place_of_what_is_being_written_is_not_followed(tmp_path: Path, source: Path) -> None:
    (tmp_path / "blob").write_bytes(OLD)
    (tmp_path / "after.mp4.partial").symlink_to("blob")
    report = reencode(source, tmp_path / "after.mp4", on_error="null")
    assert report["error"].startswith("ShardWriteError: ")
    assert (tmp_path / "blob").read_bytes() == OLD


def test_folder_that_cannot_be_made(tmp_path: Path, source: Path) -> None:
    (tmp_path / "file").write_bytes(OLD)
    report = reencode(source, tmp_path / "file" / "after.mp4", on_error="null")
    assert report["error"].startswith("ShardWriteError: ")
    assert str(tmp_path / "file") in report["error"]
    assert leftovers(tmp_path) == ["file"]


def test_output_that_is_no_file_is_refused_before_anything_is_done(tmp_path: Path, source: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe", ""):
        report = reencode(source, f"{tmp_path}/{name}", on_error="null")
        assert report["error"].startswith("ShardWriteError: "), name
        assert "no regular file" in report["error"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]
    assert not [path for path in tmp_path.parent.iterdir() if path.name.endswith(".partial")]
    report = reencode(source, "/dev/full", on_error="null")
    assert "no regular file" in report["error"]
    assert Path("/dev/full").is_char_device()
    assert not Path("/dev/full.partial").exists()


def test_output_that_somebody_else_is_writing_is_refused(tmp_path: Path, source: Path) -> None:
    output = tmp_path / "after.mp4"
    with whole_file(str(output), None) as staged:
        Path(staged).write_bytes(b"theirs")
        report = reencode(source, output, on_error="null")
        assert report["error"].startswith("ShardWriteError: ")
        assert "is being written" in report["error"]
    assert output.read_bytes() == b"theirs"
    assert leftovers(tmp_path) == ["after.mp4"]


def test_what_a_killed_process_left_is_written_over(tmp_path: Path, source: Path) -> None:
    (tmp_path / "after.mp4.partial").write_bytes(b"left" * 99999)
    assert reencode(source, tmp_path / "after.mp4")["frames"] == 40
    assert leftovers(tmp_path) == ["after.mp4"]


def with_little_space(source: str, folder: str, limit_bytes: int) -> list[Any]:
    """What is reported, when no file may grow beyond a limit."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
    (Path(folder) / "after.mp4").write_bytes(OLD)
    errors = [
        reencode(source, f"{folder}/{name}", on_error="null", codec=codec, crf=1)["error"]
        for codec in ("hevc", "h264")
        for name in ("after.mp4", "other.mp4")
    ]
    return [errors, leftovers(Path(folder)), (Path(folder) / "after.mp4").read_bytes() == OLD]


@pytest.mark.parametrize("limit_bytes", [1000, 20_000, 60_000])
def test_no_space(tmp_path: Path, source: Path, limit_bytes: int) -> None:
    errors, left, as_it_was = run_alone(with_little_space, str(source), str(tmp_path), limit_bytes)
    assert all(error is not None and error.startswith("ShardWriteError: ") for error in errors), errors
    assert left == ["after.mp4"]
    assert as_it_was


def test_other_rows_go_on(tmp_path: Path, source: Path) -> None:
    (tmp_path / "empty.mp4").write_bytes(b"")
    shards = [str(source), f"{tmp_path}/empty.mp4", str(source), f"{tmp_path}/gone.mp4", str(source)]
    rows = daft.from_pydict({"shard": shards, "output": [f"{tmp_path}/new/{number}.mp4" for number in range(5)]})
    report = reencode_ddra(col("shard"), output=col("output"), on_error="null", **QUICK)
    done = rows.select(report).to_pydict()["reencoded"]
    assert [row["frames"] for row in done] == [40, None, 40, None, 40]
    assert [row["error"] and row["error"].split(":")[0] for row in done] == [
        None,
        "ShardFormatError",
        None,
        "ShardNotFoundError",
        None,
    ]
    assert leftovers(tmp_path / "new") == ["0.mp4", "2.mp4", "4.mp4"]
    with pytest.raises(ShardFormatError, match=r"empty\.mp4"):
        rows.limit(2).select(reencode_ddra(col("shard"), output=col("output"), **QUICK)).collect()


@pytest.mark.parametrize("interval", [4, "auto"])
def test_encoder_that_refuses_is_an_error_of_the_row(tmp_path: Path, interval: Any) -> None:
    path = encode(tmp_path / "before.mkv", draw_scene("mixed", 3, 8, 8), codec="ffv1")
    fail(path, tmp_path / "after.mp4", ShardFormatError, "cannot be encoded: x265 refuses", interval=interval)


def test_error_that_is_kept_does_no_harm_to_the_next_try(tmp_path: Path, source: Path) -> None:
    """The encoder of a failed try, which the error's traceback may hold, does not delete what the next one writes."""
    data = bytearray(source.read_bytes())
    with av.open(str(source)) as file:
        places = [(packet.pos, packet.size) for packet in file.demux(video=0) if packet.size]
    position, size = places[-1]
    data[position + 4 : position + size] = bytes(size - 4)
    (tmp_path / "before.mp4").write_bytes(data)
    output, settings = str(tmp_path / "after.mp4"), Settings(**QUICK)
    kept = []
    try:
        reencode_shard(ShardSource.of_path(str(tmp_path / "before.mp4")), output, None, settings)
    except FrameDecodeError as error:
        kept.append(error)
    assert len(kept) == 1
    with whole_file(output, None) as staged:
        Path(staged).write_bytes(b"new")
        kept.clear()
    assert Path(output).read_bytes() == b"new"
