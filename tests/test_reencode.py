# SPDX-License-Identifier: Apache-2.0
"""`reencode_ddra`: what is written has the source's frames, times and colours, and is written whole or not at all."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import av
import daft
import numpy as np
import numpy.typing as npt
import pytest
from daft import DataType, col

from container_surgery import cut_to
from daft_sparsevideo import errors, reencode_ddra
from ddra_shards import Graph
from encoding import encode
from own_process import run_alone
from scenes import draw_scene, solid
from small_clip import CLOCKWISE, make_clip, rotate

QUICK: dict[str, Any] = {"preset": "ultrafast", "interval": 8}


def reencode(source: Path | str, output: Path | str, *, episodes: Any = None, **options: Any) -> dict[str, Any]:
    rows = daft.from_pydict({"shard": [str(source)], "output": [str(output)]})
    report = reencode_ddra(col("shard"), output=col("output"), episodes=episodes, **(QUICK | options))
    found: dict[str, Any] = rows.select(report).to_pydict()["reencoded"][0]
    return found


def frames_of(path: Path | str) -> list[Any]:
    with av.open(str(path)) as file:
        return list(file.decode(video=0))


def times_of(path: Path | str) -> list[Fraction]:
    return [frame.pts * frame.time_base for frame in frames_of(path)]


def psnr(one: npt.NDArray[Any], other: npt.NDArray[Any], peak: float = 255) -> float:
    return float(10 * np.log10(peak**2 / max(1e-9, np.mean((one.astype(np.float64) - other) ** 2))))


def rgb(frame: Any) -> npt.NDArray[np.uint8]:
    return frame.to_ndarray(format="rgb24")  # type: ignore[no-any-return]


def luma(frame: Any) -> npt.NDArray[np.uint8]:
    plane = frame.planes[0]
    return np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)[:, : plane.width]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_clip(tmp_path_factory.mktemp("reencode") / "clip.mp4", frames=50).path


SOURCES: dict[str, dict[str, Any]] = {
    "h264.mp4": {"codec": "libx264", "params": "keyint=24:bframes=3"},
    "hevc.mp4": {"codec": "libx265", "params": "keyint=24:log-level=none"},
    "av1.mp4": {"codec": "libsvtav1", "options": {"g": "8", "preset": "12"}},
    "ten_bits.mp4": {"codec": "libx265", "params": "log-level=none", "pix_fmt": "yuv420p10le"},
    "full_range.mp4": {"codec": "libx264", "pix_fmt": "yuvj420p"},
    "ntsc.mp4": {"codec": "libx264", "rate": Fraction(30000, 1001)},
    "matroska.mkv": {"codec": "libx264"},
    "transport.ts": {"codec": "libx264"},
    "fragments.mp4": {"codec": "libx264", "container_options": {"movflags": "+frag_keyframe+empty_moov"}},
    "with_audio.mp4": {"codec": "libx264", "extra_streams": "audio_first"},
}


@pytest.mark.parametrize("codec", ["hevc", "h264"])
@pytest.mark.parametrize("name", SOURCES)
def test_frames_times_and_form_stay(tmp_path: Path, name: str, codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SVT_LOG", "1")
    source = encode(tmp_path / name, draw_scene("mixed", 40, 96, 64), **SOURCES[name])
    output = tmp_path / "new.mp4"
    report = reencode(source, output, codec=codec, crf=8.0)
    assert (report["frames"], report["closure_max"], report["error"]) == (40, 3, None)
    assert times_of(output) == times_of(source)
    before, after = frames_of(source), frames_of(output)
    for one, other in zip(before, after, strict=True):
        assert psnr(rgb(one), rgb(other)) > 33
        assert other.format.name.replace("j", "") == one.format.name.replace("j", "")
        assert max(1, other.color_range) == max(1, one.color_range), "limited where nothing is told"


def test_times_of_a_variable_rate_stay(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    pts = (1000 + np.cumsum(rng.integers(200, 4000, 40))).tolist()
    source = encode(tmp_path / "vfr.mp4", draw_scene("mixed", 40, 96, 64), pts=pts, time_base=Fraction(1, 90000))
    report = reencode(source, tmp_path / "new.mp4", interval="auto", episodes=[float(Fraction(pts[11], 90000))])
    assert report["closure_max"] <= 3
    assert times_of(tmp_path / "new.mp4") == times_of(source)


def test_what_an_edit_list_hides_stays_hidden(tmp_path: Path, clip: Path) -> None:
    source = cut_to(clip, tmp_path / "cut.mp4", 6 * 512, 200)
    reencode(source, tmp_path / "new.mp4")
    assert times_of(tmp_path / "new.mp4") == times_of(source)
    assert len(times_of(source)) == 44


def test_colour_tags_and_shape_of_pixels_stay(tmp_path: Path) -> None:
    params = "colorprim=bt709:transfer=bt709:colormatrix=bt709:range=tv:sar=4/3"
    source = encode(tmp_path / "tagged.mp4", draw_scene("mixed", 9, 96, 64), params=params)
    reencode(source, tmp_path / "new.mp4")
    with av.open(str(source)) as one, av.open(str(tmp_path / "new.mp4")) as other:
        for name in ("color_primaries", "color_trc", "colorspace", "color_range"):
            found, wanted = (getattr(file.streams.video[0].codec_context, name) for file in (other, one))
            assert found == wanted
        assert other.streams.video[0].sample_aspect_ratio == Fraction(4, 3)


@pytest.mark.parametrize("degrees", CLOCKWISE)
def test_rotation_stays(tmp_path: Path, degrees: int) -> None:
    clip = make_clip(tmp_path / "clip.mp4", frames=9)
    source = rotate(clip, tmp_path / "turned.mp4", degrees)
    reencode(source, tmp_path / "new.mp4")
    assert frames_of(tmp_path / "new.mp4")[0].rotation == frames_of(source)[0].rotation


@pytest.mark.parametrize("codec", ["hevc", "h264"])
@pytest.mark.parametrize(
    ("options", "most"), [({}, 3), ({"closed": True}, 3), ({"closure": 4}, 4), ({"fragmented": True}, 3)]
)
def test_no_frame_depends_on_another_episode_and_closures_hold(
    tmp_path: Path, codec: str, options: dict[str, Any], most: int
) -> None:
    colours = [(200, 30, 30), (30, 200, 30), (30, 30, 200), (120, 120, 20)]
    lengths = [17, 1, 2, 20]
    pictures = chain.from_iterable(solid(colour, count) for colour, count in zip(colours, lengths, strict=True))
    source = encode(tmp_path / "source.mp4", pictures, params="keyint=250")
    begins = np.concatenate([[0], np.cumsum(lengths)])
    seconds = (begins[:-1] / 30).tolist()
    report = reencode(source, tmp_path / "new.mp4", codec=codec, episodes=seconds, **options)
    assert report["closure_max"] <= most
    graph = Graph.of(tmp_path / "new.mp4")
    for first, stop in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
        for frame in range(first, stop):
            assert graph.closure(frame) <= set(range(first, stop))
            assert len(graph.closure(frame)) <= most
    for frame, colour in zip(frames_of(tmp_path / "new.mp4"), np.repeat(colours, lengths, axis=0), strict=True):
        assert np.abs(np.median(rgb(frame), axis=(0, 1)) - colour).max() < 12


@pytest.mark.parametrize("interval", [1, 4, 5, 32, 64])
def test_an_interval_that_is_given_is_obeyed(tmp_path: Path, clip: Path, interval: int) -> None:
    report = reencode(clip, tmp_path / "new.mp4", interval=interval)
    assert report["intervals"] == [{"frame": 0, "interval": interval}]
    references = Graph.of(tmp_path / "new.mp4").references
    anchors = [frame for frame, of in enumerate(references) if not of]
    assert anchors == [*range(0, 50, interval)]


def test_the_report_is_what_was_written(tmp_path: Path, clip: Path) -> None:
    report = reencode(clip, tmp_path / "new.mp4", crf=23.0)
    before, after = frames_of(clip), frames_of(tmp_path / "new.mp4")
    of_rgb = [psnr(rgb(one), rgb(other)) for one, other in zip(before, after, strict=True)]
    of_luma = [psnr(luma(one), luma(other)) for one, other in zip(before, after, strict=True)]
    assert report["psnr_db"] == pytest.approx(np.mean(of_rgb), abs=1e-3)
    assert report["worst_psnr_db"] == pytest.approx(min(of_rgb), abs=1e-3)
    assert report["y_psnr_db"] == pytest.approx(np.mean(of_luma), abs=1e-3)
    assert report["worst_y_psnr_db"] == pytest.approx(min(of_luma), abs=1e-3)
    assert report["bytes_before"] == clip.stat().st_size
    assert report["bytes_after"] == (tmp_path / "new.mp4").stat().st_size
    closures = [len(Graph.of(tmp_path / "new.mp4").closure(frame)) for frame in range(50)]
    assert (report["closure_max"], report["closure_mean"]) == (max(closures), pytest.approx(np.mean(closures)))
    assert report["crf"] == 23.0
    assert report["encoder"].startswith("x265 4.1")
    assert report["path"] == str(tmp_path / "new.mp4")


@pytest.mark.parametrize("codec", ["hevc", "h264"])
@pytest.mark.parametrize("target_db", [34.0, 42.0])
def test_a_psnr_that_is_asked_for_is_reached(tmp_path: Path, clip: Path, codec: str, target_db: float) -> None:
    report = reencode(clip, tmp_path / "new.mp4", codec=codec, psnr_db=target_db)
    assert target_db - 0.1 <= report["psnr_db"] <= target_db + 0.4  # of so few frames it moves in steps


def test_a_psnr_out_of_reach_is_an_error_and_leaves_nothing(tmp_path: Path, clip: Path) -> None:
    with pytest.raises(errors.GateError, match=r"60\.00 dB is not reached, only"):
        reencode(clip, tmp_path / "out" / "new.mp4", psnr_db=60.0)
    assert [*(tmp_path / "out").iterdir()] == []


@pytest.mark.parametrize("name", ["h264.mp4", "hevc.mp4", "av1.mp4"])
def test_the_sources_own_quality_can_be_asked_for(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SVT_LOG", "1")
    source = encode(tmp_path / name, draw_scene("mixed", 40, 96, 64), **SOURCES[name])
    report = reencode(source, tmp_path / "new.mp4", match_source=True)
    assert 30 < report["psnr_db"] < 60


def test_one_list_of_episodes_a_column_of_them_and_none_are_taken(tmp_path: Path, clip: Path) -> None:
    begins = [0.0, 0.5, 0.9]
    rows = {
        "shard": [str(clip)] * 2,
        "output": [str(tmp_path / f"{name}.mp4") for name in ("column", "null")],
        "begins": [begins, None],
    }
    report = reencode_ddra(col("shard"), output=col("output"), episodes=col("begins"), **QUICK)
    column, null = daft.from_pydict(rows).select(report).to_pydict()["reencoded"]
    one = reencode(clip, tmp_path / "list.mp4", episodes=[0.9, 0.5, 0.0, 0.5])
    assert [len(report["intervals"]) for report in (column, null, one)] == [3, 1, 3]
    assert [section["frame"] for section in column["intervals"]] == [0, 15, 27]


def test_an_episode_outside_the_shard_is_an_error(tmp_path: Path, clip: Path) -> None:
    with pytest.raises(errors.ShardFormatError, match=r"an episode begins at 99\.000000 s of .*clip\.mp4"):
        reencode(clip, tmp_path / "new.mp4", episodes=[0.0, 99.0])
    assert not (tmp_path / "new.mp4").exists()


def test_null_rows_give_null(tmp_path: Path, clip: Path) -> None:
    rows = daft.from_pydict(
        {"shard": [None, str(clip), str(clip)], "output": [str(tmp_path / "a.mp4"), None, str(tmp_path / "b.mp4")]}
    )
    found = rows.select(reencode_ddra(col("shard"), output=col("output"), **QUICK)).to_pydict()["reencoded"]
    assert [report is None for report in found] == [True, True, False]
    assert not (tmp_path / "a.mp4").exists()
    empty = daft.from_pydict({"shard": [], "output": []}).with_columns(
        {name: col(name).cast(DataType.string()) for name in ("shard", "output")}
    )
    assert empty.select(reencode_ddra(col("shard"), output=col("output"), **QUICK)).to_pydict() == {"reencoded": []}


def damaged(tmp_path: Path, clip: Path) -> dict[str, Path]:
    data = clip.read_bytes()
    middle = data.index(b"mdat") + 9000
    odd = encode(tmp_path / "odd.mkv", draw_scene("mixed", 3, 97, 63), codec="mpeg4")
    return {
        "missing": tmp_path / "gone.mp4",
        "empty": write(tmp_path / "empty.mp4", b""),
        "no video": write(tmp_path / "text.mp4", b"no video at all" * 100),
        "truncated": write(tmp_path / "truncated.mp4", data[: len(data) * 2 // 3]),
        "changed": write(tmp_path / "changed.mp4", data[:middle] + bytes(300) + data[middle + 300 :]),
        "odd": odd,
        "444": encode(tmp_path / "444.mp4", draw_scene("mixed", 3, 96, 64), pix_fmt="yuv444p"),
    }


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


MESSAGES = {
    "missing": (errors.ShardNotFoundError, "there is no file"),
    "empty": (errors.ShardFormatError, r"empty\.mp4"),
    "no video": (errors.ShardFormatError, r"text\.mp4"),
    "truncated": (errors.SparseVideoError, r"truncated\.mp4"),
    "changed": (errors.FrameDecodeError, r"frame \d+ at .* of .*changed\.mp4"),
    "odd": (errors.ShardFormatError, "97x63: .* odd size .* crop or pad"),
    "444": (errors.ShardFormatError, "yuv444p: only 4:2:0"),
}


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_source_that_cannot_be_read_is_named_and_nothing_is_written(tmp_path: Path, clip: Path, kind: str) -> None:
    error, message = MESSAGES[kind]
    output = write(tmp_path / "new.mp4", b"what was there")
    with pytest.raises(error, match=message):
        reencode(damaged(tmp_path, clip)[kind], output)
    assert output.read_bytes() == b"what was there"
    assert not [*tmp_path.glob("*.partial")]


def test_other_rows_go_on_where_one_fails(tmp_path: Path, clip: Path) -> None:
    sources = [clip, *damaged(tmp_path, clip).values(), clip]
    outputs = [tmp_path / "out" / f"{number}.mp4" for number in range(len(sources))]
    rows = daft.from_pydict({"shard": [*map(str, sources)], "output": [*map(str, outputs)]})
    report = reencode_ddra(col("shard"), output=col("output"), on_error="null", **QUICK)
    found = rows.select(report).to_pydict()["reencoded"]
    assert [row["path"] for row in found] == [*map(str, outputs)]
    assert [row["error"] is None for row in found] == [True, *[False] * len(MESSAGES), True]
    for row, source in zip(found[1:-1], sources[1:-1], strict=True):
        assert source.name in row["error"]
        assert row["frames"] is None
    assert sorted((tmp_path / "out").iterdir()) == [outputs[0], outputs[-1]]


@pytest.mark.parametrize("link", ["same", "symlink", "hardlink", "relative", "url"])
def test_the_source_is_never_the_output(tmp_path: Path, clip: Path, link: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "source.mp4", clip.read_bytes())
    output = {"same": source, "relative": Path("source.mp4"), "url": f"file://{source}"}.get(
        link, tmp_path / "other.mp4"
    )
    if link in ("symlink", "hardlink"):
        getattr(tmp_path / "other.mp4", f"{link}_to")(source)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.ShardWriteError, match="is the source"):
        reencode(source, output)
    assert source.read_bytes() == clip.read_bytes()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, clip: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(errors.ShardWriteError, match="file"):
        reencode(clip, tmp_path / "file" / "new.mp4")
    (tmp_path / "folder").mkdir()
    with pytest.raises(errors.ShardWriteError, match="folder"):
        reencode(clip, tmp_path / "folder")
    assert [*(tmp_path / "folder").iterdir()] == []


def reencode_in_little_space(source: str, output: str) -> str:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    try:
        reencode(source, output, crf=1.0)
    except errors.ShardWriteError as error:
        return str(error)
    return "written"


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path, clip: Path) -> None:
    output = tmp_path / "out" / "new.mp4"
    assert "File too large" in run_alone(reencode_in_little_space, str(clip), str(output))
    assert [*output.parent.iterdir()] == []


@pytest.mark.parametrize("delay_s", [0.0, 0.1, 0.25, 0.5, 1.0])
def test_a_kill_leaves_what_was_there_or_a_finished_shard(tmp_path: Path, clip: Path, delay_s: float) -> None:
    output = write(tmp_path / "new.mp4", b"what was there")
    program = (
        "import sys, daft\nfrom daft import col\nfrom daft_sparsevideo import reencode_ddra\n"
        "rows = daft.from_pydict({'shard': [sys.argv[1]], 'output': [sys.argv[2]]})\n"
        "print('begins', flush=True)\n"
        "rows.select(reencode_ddra(col('shard'), output=col('output'), preset='slower')).collect()"
    )
    command = [sys.executable, "-c", program, str(clip), str(output)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:  # noqa: S603
        assert run.stdout is not None
        assert run.stdout.readline() == b"begins\n"
        time.sleep(delay_s)
        run.send_signal(signal.SIGKILL)
    assert output.read_bytes() == b"what was there" or len(frames_of(output)) == 50
    reencode(clip, output)
    assert len(frames_of(output)) == 50
    assert not [*tmp_path.glob("*.partial")]


def interrupt(source: str, output: str) -> list[Any]:
    threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        reencode(source, output, preset="placebo", interval=32)
    except KeyboardInterrupt:
        return ["interrupted", Path(output).exists()]
    return ["finished", True]


def test_ctrl_c_ends_a_long_encode(tmp_path: Path) -> None:
    source = make_clip(tmp_path / "long.mp4", frames=400, size=(320, 240)).path
    assert run_alone(interrupt, str(source), str(tmp_path / "new.mp4"), timeout_s=60) == ["interrupted", False]


def test_files_are_read_as_well_as_paths(tmp_path: Path, clip: Path) -> None:
    rows = daft.from_pydict({"output": [str(tmp_path / "new.mp4")]})
    report = rows.select(reencode_ddra(daft.File(str(clip)), output=col("output"), **QUICK))
    assert report.to_pydict()["reencoded"][0]["bytes_before"] == clip.stat().st_size
    assert times_of(tmp_path / "new.mp4") == times_of(clip)


def test_a_path_for_a_single_row_may_be_a_constant(tmp_path: Path, clip: Path) -> None:
    rows = daft.from_pydict({"one": [1]})
    report = rows.select(reencode_ddra(str(clip), output=tmp_path / "new.mp4", episodes=[0.0], **QUICK))
    assert report.schema()["reencoded"].dtype.is_struct()
    assert report.to_pydict()["reencoded"][0]["frames"] == 50


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"codec": "vp9"}, ValueError, "codec is 'vp9'"),
        ({"interval": 0}, ValueError, "interval"),
        ({"interval": 65}, ValueError, "at most 64"),
        ({"interval": "long"}, TypeError, "interval"),
        ({"closure": 2}, ValueError, "3 or 4"),
        ({"crf": -1}, ValueError, r"\[0, 51\]"),
        ({"crf": "fine"}, TypeError, "crf must be a number"),
        ({"crf": float("nan")}, ValueError, "crf"),
        ({"psnr_db": 99.0}, ValueError, "psnr_db"),
        ({"crf": 20, "match_source": True}, ValueError, "one of crf"),
        ({"preset": "sleepy"}, ValueError, "no preset sleepy"),
        ({"num_threads": 0}, ValueError, "num_threads"),
        ({"on_error": "ignore"}, ValueError, "on_error"),
        ({"episodes": ["a"]}, TypeError, "episodes"),
        ({"output": 5}, TypeError, "output"),
    ],
)
def test_wrong_options_are_refused_where_the_plan_is_made(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        reencode_ddra(col("shard"), **({"output": "new.mp4"} | options))
