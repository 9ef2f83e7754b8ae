# SPDX-License-Identifier: Apache-2.0
"""Shards written anew show the same frames at the same times in the same colours, each a few pictures away."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import daft
import numpy as np
import pytest
from daft import col

import container_surgery as surgery
from daft_sparsevideo import VideoDecoder, reencode_ddra
from daft_sparsevideo.ddra import ddra_frame_types
from ddra_shards import Graph
from encoding import encode
from oracle import decode_sequentially, rgb_of
from reencoded import QUICK, leftovers, measured_db, reencode, shown
from scenes import Picture, draw_scene, numbered, solid
from small_clip import Clip, rotate

os.environ.setdefault("SVT_LOG", "1")

FRAMES = 23
CODECS = ("hevc", "h264")
PARAMS = {"libx264": "keyint=12:bframes=3", "libx265": "keyint=12:bframes=3:log-level=error", "libsvtav1": ""}


def numbers(frames: int = FRAMES, first: int = 0) -> Iterator[Picture]:
    return (numbered(number) for number in range(first, first + frames))


def source(path: Path, codec: str = "libx264", **options: Any) -> Path:
    if codec == "libsvtav1":
        options["options"] = {"preset": "10", "crf": "20"}
    else:
        options["params"] = PARAMS[codec]
    return encode(path, numbers(), codec=codec, **options)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("suffix", ["mp4", "mov", "mkv", "ts"])
@pytest.mark.parametrize("source_codec", ["libx264", "libx265", "libsvtav1"])
def test_frames_and_their_times_stay(tmp_path: Path, source_codec: str, suffix: str, codec: str) -> None:
    if source_codec == "libsvtav1" and suffix in {"ts", "mov"}:
        pytest.skip("FFmpeg writes no AV1 there")
    before = source(tmp_path / f"before.{suffix}", source_codec)
    report = reencode(before, tmp_path / "after.mp4", codec=codec)
    assert shown(tmp_path / "after.mp4") == shown(before)
    assert shown(before).numbers == list(range(FRAMES))
    assert report["frames"] == FRAMES
    with av.open(str(tmp_path / "after.mp4")) as file:
        assert file.streams.video[0].codec_context.codec.canonical_name == codec


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("source_codec", ["libx264", "libx265", "libsvtav1"])
def test_ten_bits_stay_ten(tmp_path: Path, source_codec: str, codec: str) -> None:
    before = source(tmp_path / "before.mp4", source_codec, pix_fmt="yuv420p10le")
    reencode(before, tmp_path / "after.mp4", codec=codec, interval="auto", crf=12)
    assert shown(tmp_path / "after.mp4") == shown(before)
    assert shown(before).pix_fmt == "yuv420p10le"


TIMES = {
    "variable": [0, 1, 5, 6, 7, 30, 31, 32, 33, 34, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 90],
    "late": list(range(1000, 1000 + FRAMES)),
    "very late": [3_000_000_000 + 2 * frame for frame in range(FRAMES)],
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("time_base", [(1, 30), (1001, 30000), (1, 90000), (1, 1_000_000)])
def test_times_stay_bit_equal_whatever_they_are(
    tmp_path: Path, time_base: tuple[int, int], times: str, codec: str
) -> None:
    before = source(tmp_path / "before.mp4", pts=TIMES[times], time_base=Fraction(*time_base))
    reencode(before, tmp_path / "after.mp4", codec=codec)
    assert shown(tmp_path / "after.mp4").times == shown(before).times


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "colours",
    [
        "colorprim=bt709:transfer=bt709:colormatrix=bt709:range=tv",
        "colorprim=smpte170m:transfer=smpte170m:colormatrix=smpte170m",
        "colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc",
        "colormatrix=bt709",
        "range=pc",
        "",
    ],
)
def test_colour_tags_stay(tmp_path: Path, colours: str, codec: str) -> None:
    pix_fmt = "yuvj420p" if colours == "range=pc" else "yuv420p"
    before = encode(tmp_path / "before.mp4", numbers(5), params=colours, pix_fmt=pix_fmt)
    reencode(before, tmp_path / "after.mp4", codec=codec)
    assert shown(tmp_path / "after.mp4") == shown(before)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("source_codec", ["libx264", "libx265", "libsvtav1", "libvpx-vp9", "mpeg4", "mjpeg", "ffv1"])
def test_chroma_samples_stay_where_they_are(tmp_path: Path, source_codec: str, codec: str) -> None:
    """In RGB, half a sample to the side would be worse than what little the encoder changes."""
    options = {"options": {"preset": "10"}} if source_codec == "libsvtav1" else {}
    pix_fmt = "yuvj420p" if source_codec == "mjpeg" else "yuv420p"
    pictures = draw_scene("mixed", 5, 96, 64)
    before = encode(tmp_path / "before.mkv", pictures, codec=source_codec, pix_fmt=pix_fmt, **options)
    report = reencode(before, tmp_path / "after.mp4", codec=codec, crf=1)
    assert report["psnr_db"] > 41
    assert measured_db(before, tmp_path / "after.mp4")["psnr_db"] > 41


@pytest.mark.parametrize("codec", CODECS)
def test_pixels_keep_their_shape(tmp_path: Path, codec: str) -> None:
    before = encode(tmp_path / "before.mp4", numbers(5), params="sar=40/33")
    reencode(before, tmp_path / "after.mp4", codec=codec)
    assert shown(tmp_path / "after.mp4") == shown(before)
    assert shown(before).sample_aspect_ratio == Fraction(40, 33)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_rotation_stays(tmp_path: Path, degrees: int, codec: str) -> None:
    clip = Clip(source(tmp_path / "plain.mp4"), [], 30)
    before = rotate(clip, tmp_path / "before.mp4", degrees)
    reencode(before, tmp_path / "after.mp4", codec=codec)
    assert shown(tmp_path / "after.mp4") == shown(before)
    assert shown(before).rotation % 360 == -degrees % 360


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("closure", "closed"), [(3, False), (3, True), (4, False), (4, True)])
def test_every_frame_is_as_near_as_asked(tmp_path: Path, closure: Any, closed: Any, codec: str) -> None:
    before = source(tmp_path / "before.mp4")
    report = reencode(before, tmp_path / "after.mp4", codec=codec, interval=8, closure=closure, closed=closed)
    graph = Graph.of(tmp_path / "after.mp4")
    sizes = [len(graph.closure(frame)) for frame in range(FRAMES)]
    assert max(sizes) == closure
    assert (report["closure_max"], report["closure_mean"]) == (max(sizes), pytest.approx(np.mean(sizes)))
    if closed:
        starts = [frame for frame in range(FRAMES) if frame % 8 == 0]
        assert all(
            min(graph.closure(frame)) >= max(start for start in starts if start <= frame) for frame in range(FRAMES)
        )


@pytest.mark.parametrize("codec", CODECS)
def test_frames_of_an_episode_depend_on_no_other(tmp_path: Path, codec: str) -> None:
    """A red, a green and a blue episode, and a blue one in the place of the green: the others stay as they are."""
    red, green, blue = (200, 20, 20), (20, 200, 20), (20, 20, 200)
    lengths, begins = (7, 9, 6), [0.0, 7 / 30, 16 / 30]
    files = []
    for middle in (green, blue):
        films = [solid(colour, length) for colour, length in zip((red, middle, blue), lengths, strict=True)]
        name = "green" if middle is green else "blue"
        path = encode(tmp_path / f"{name}.mp4", (picture for film in films for picture in film), params="crf=0")
        reencode(path, tmp_path / f"{name} after.mp4", codec=codec, episodes=begins, num_threads=1)
        files.append(tmp_path / f"{name} after.mp4")
    graph = Graph.of(files[0])
    for first, stop in ((0, 7), (7, 16), (16, 22)):
        for frame in range(first, stop):
            assert graph.closure(frame) <= set(range(first, stop))
    one, other = ([bytes(packet) for packet in packets_of(path)] for path in files)
    assert one[7:16] != other[7:16]
    if codec == "hevc":  # x264 gives other bytes each time
        assert one[:7] == other[:7]
        assert one[16:] == other[16:]
    pictures = [rgb_of(frame) for frame in decode_sequentially(files[0])]
    assert [int(picture[20:].mean(axis=(0, 1)).argmax()) for picture in pictures] == [0] * 7 + [1] * 9 + [2] * 6


def packets_of(path: Path) -> list[Any]:
    with av.open(str(path)) as file:
        return [packet for packet in file.demux(video=0) if packet.size]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("interval", [4, "auto"])
@pytest.mark.parametrize("closure", [3, 4])
def test_episodes_may_be_of_one_frame_or_two(tmp_path: Path, closure: Any, interval: Any, codec: str) -> None:
    before = source(tmp_path / "before.mp4")
    firsts = [0, 1, 2, 4, 20, 22]
    report = reencode(
        before,
        tmp_path / "after.mp4",
        codec=codec,
        interval=interval,
        closure=closure,
        episodes=[first / 30 for first in firsts],
    )
    assert shown(tmp_path / "after.mp4") == shown(before)
    assert [one["frame"] for one in report["intervals"]] == firsts
    graph = Graph.of(tmp_path / "after.mp4")
    assert [graph.closure(frame) for frame in (0, 1, 2, 3, 22)] == [{0}, {1}, {2}, {2, 3}, {22}]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("frames", [1, 2])
def test_videos_may_be_of_one_frame_or_two(tmp_path: Path, frames: int, codec: str) -> None:
    before = encode(tmp_path / "before.mp4", numbers(frames))
    reencode(before, tmp_path / "after.mp4", codec=codec, interval="auto")
    assert shown(tmp_path / "after.mp4") == shown(before)


def firsts_of(path: Path) -> list[int]:
    graph = Graph.of(path)
    intra = [frame for frame, references in enumerate(graph.references) if not references]
    return [
        frame for frame in intra if all(min(graph.closure(later)) >= frame for later in range(frame, len(graph.pts)))
    ]


@pytest.mark.parametrize("kind", ["float64", "float32", "int64", "fixed"])
def test_episodes_may_be_a_column(tmp_path: Path, kind: str) -> None:
    before = source(tmp_path / "before.mp4", rate=1 if kind == "int64" else 30)
    unit = 1 if kind == "int64" else 30
    columns: dict[str, Any] = {"output": [f"{tmp_path}/{number}.mp4" for number in range(3)]}
    columns["begins"] = [[0, 10 / unit], [0, 12 / unit], None]
    rows = daft.from_pydict(columns)
    types = {"float64": daft.DataType.float64(), "float32": daft.DataType.float32(), "int64": daft.DataType.int64()}
    if kind == "fixed":
        begins = col("begins").cast(daft.DataType.fixed_size_list(daft.DataType.float64(), 2))
    else:
        begins = col("begins").cast(daft.DataType.list(types[kind]))
    report = reencode_ddra(str(before), output=col("output"), episodes=begins, interval=64, preset="ultrafast")
    done = rows.select(report).to_pydict()["reencoded"]
    assert [[one["frame"] for one in row["intervals"]] for row in done] == [[0, 10], [0, 12], [0]]
    assert [firsts_of(tmp_path / f"{number}.mp4") for number in range(3)] == [[0, 10], [0, 12], [0]]


@pytest.mark.parametrize("episodes", [[], [0.0], None, np.array([0.0]), (0,)])
def test_episodes_may_be_one_or_none(tmp_path: Path, episodes: Any) -> None:
    report = reencode(source(tmp_path / "before.mp4"), tmp_path / "after.mp4", episodes=episodes)
    assert report["intervals"] == [{"frame": 0, "interval": 4}]


def test_order_and_repetition_of_episodes_do_not_matter(tmp_path: Path) -> None:
    before = source(tmp_path / "before.mp4")
    one = reencode(before, tmp_path / "one.mp4", episodes=[0.0, 5 / 30, 10 / 30], interval=64)
    other = reencode(before, tmp_path / "other.mp4", episodes=[10 / 30, 0.0, 10 / 30, 5 / 30], interval=64)
    assert one["intervals"] == other["intervals"]
    assert firsts_of(tmp_path / "one.mp4") == firsts_of(tmp_path / "other.mp4") == [0, 5, 10]


@pytest.mark.parametrize("interval", [1, 2, 5, 64])
@pytest.mark.parametrize("codec", CODECS)
def test_an_explicit_interval_is_obeyed(tmp_path: Path, interval: int, codec: str) -> None:
    before = encode(tmp_path / "before.mp4", draw_scene("cuts", 30, 96, 64))
    report = reencode(before, tmp_path / "after.mp4", codec=codec, interval=interval)
    assert report["intervals"] == [{"frame": 0, "interval": interval}]
    intra = [frame for frame, references in enumerate(Graph.of(tmp_path / "after.mp4").references) if not references]
    types = ddra_frame_types(30, interval)
    assert intra == [frame for frame, letter in enumerate(types) if letter in "Ii"]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv420p10le"])
def test_report_tells_what_others_measure(tmp_path: Path, pix_fmt: str, codec: str) -> None:
    before = encode(tmp_path / "before.mp4", draw_scene("mixed", 20, 96, 64), pix_fmt=pix_fmt, params="crf=15")
    after = tmp_path / "after.mp4"
    report = reencode(before, after, codec=codec, crf=27.5, interval=8)
    for name, measured in measured_db(before, after).items():
        assert report[name] == pytest.approx(measured, abs=1e-3), name
    sizes = [path.stat().st_size for path in (before, after)]
    assert [report["bytes_before"], report["bytes_after"]] == sizes
    assert (report["path"], report["frames"], report["crf"], report["error"]) == (str(after), 20, 27.5, None)
    assert report["encoder"].startswith({"hevc": "x265 ", "h264": "x264 "}[codec])
    assert report["encoder"].endswith(" ultrafast")
    assert report["seconds"] > 0


def test_what_is_written_decodes_exactly(tmp_path: Path) -> None:
    before = encode(tmp_path / "before.mp4", draw_scene("mixed", 20, 96, 64))
    reencode(before, tmp_path / "after.mp4", closure=4, interval=8)
    decoder = VideoDecoder(tmp_path / "after.mp4")
    for number, frame in enumerate(decode_sequentially(tmp_path / "after.mp4")):
        assert np.array_equal(decoder.get_frames_at([number]).data[0], rgb_of(frame))


def test_audio_and_covers_are_left_out(tmp_path: Path) -> None:
    before = source(tmp_path / "before.mp4", extra_streams="audio_first")
    reencode(before, tmp_path / "after.mp4")
    with av.open(str(tmp_path / "after.mp4")) as file:
        assert [stream.type for stream in file.streams] == ["video"]
    pictures = list(numbers(6))
    before = surgery.with_cover(tmp_path / "cover.mp4", pictures, np.zeros((200, 300, 3), np.uint8))
    reencode(before, tmp_path / "no cover.mp4")
    assert shown(tmp_path / "no cover.mp4").numbers == list(range(6))


def test_an_edit_list_that_cuts_is_obeyed(tmp_path: Path) -> None:
    plain = source(tmp_path / "plain.mp4")
    before = surgery.cut_to(plain, tmp_path / "before.mp4", 512 * 5, 167)
    reencode(before, tmp_path / "after.mp4")
    assert shown(tmp_path / "after.mp4").numbers == shown(before).numbers
    assert shown(tmp_path / "after.mp4").times == shown(before).times


@pytest.mark.parametrize("name", ["a b.mp4", "ü.mp4", "100%.mp4", "a:b.mp4", "no suffix", "it's.mp4"])
def test_any_name_will_do(tmp_path: Path, name: str) -> None:
    before = source(tmp_path / "before.mp4").rename(tmp_path / f"before {name}")
    reencode(before, tmp_path / "new" / "folder" / name)
    assert leftovers(tmp_path) == sorted([f"before {name}", f"new/folder/{name}"])


def test_relative_paths_and_file_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source(tmp_path / "before.mp4")
    monkeypatch.chdir(tmp_path)
    assert reencode("before.mp4", "after.mp4")["path"] == "after.mp4"
    reencode(f"file://{tmp_path}/before.mp4", f"file://{tmp_path}/other.mp4")
    assert leftovers(tmp_path) == ["after.mp4", "before.mp4", "other.mp4"]
    assert Path("after.mp4").read_bytes() == Path("other.mp4").read_bytes()


def test_source_may_be_a_file_or_a_part_of_one(tmp_path: Path) -> None:
    before = source(tmp_path / "before.mp4")
    rows = daft.from_pydict({"file": [daft.File(str(before))]})
    rows.select(reencode_ddra(col("file"), output=str(tmp_path / "one.mp4"), **QUICK)).collect()
    reencode(before, tmp_path / "other.mp4")
    assert (tmp_path / "one.mp4").read_bytes() == (tmp_path / "other.mp4").read_bytes()


def test_a_file_that_is_there_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "after.mp4").write_bytes(b"old")
    reencode(source(tmp_path / "before.mp4"), tmp_path / "after.mp4")
    assert shown(tmp_path / "after.mp4").numbers == list(range(FRAMES))
    assert leftovers(tmp_path) == ["after.mp4", "before.mp4"]


def test_nulls_give_null(tmp_path: Path) -> None:
    before = source(tmp_path / "before.mp4")
    rows = daft.from_pydict({"shard": [None, str(before), str(before)], "output": ["x", None, f"{tmp_path}/after.mp4"]})
    report = reencode_ddra(col("shard"), output=col("output"), **QUICK)
    done = rows.select(report).to_pydict()["reencoded"]
    assert [row is None for row in done] == [True, True, False]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"codec": "av1"}, ValueError, "codec is 'av1'"),
        ({"interval": 0}, ValueError, "interval is 0"),
        ({"interval": 65}, ValueError, "interval is 65"),
        ({"interval": "often"}, TypeError, "interval must be"),
        ({"interval": 2.5}, TypeError, "interval must be"),
        ({"interval": True}, TypeError, "interval must be"),
        ({"closure": 5}, ValueError, "closure is 5"),
        ({"closure": None}, ValueError, "closure is None"),
        ({"crf": -1}, ValueError, "crf is -1"),
        ({"crf": 51.5}, ValueError, "crf is 51.5"),
        ({"crf": float("nan")}, ValueError, "crf is nan"),
        ({"crf": "20"}, TypeError, "crf must be a number"),
        ({"psnr_db": 61}, ValueError, "psnr_db is 61"),
        ({"psnr_db": "good"}, TypeError, "psnr_db must be a number"),
        ({"crf": 20, "psnr_db": 40}, ValueError, "give one of"),
        ({"crf": 20, "match_source": True}, ValueError, "give one of"),
        ({"match_source": "yes"}, TypeError, "match_source must be"),
        ({"closed": "no"}, TypeError, "closed must be"),
        ({"preset": "quick"}, ValueError, "no preset quick"),
        ({"preset": 5}, TypeError, "preset must be"),
        ({"num_threads": 0}, ValueError, "num_threads is 0"),
        ({"num_threads": "all"}, TypeError, "num_threads must be"),
        ({"on_error": "ignore"}, ValueError, "on_error is 'ignore'"),
        ({"episodes": 1.5}, TypeError, "episodes must be"),
        ({"episodes": "0.0"}, TypeError, "episodes must be"),
        ({"episodes": ["0.0"]}, TypeError, "each of episodes must be"),
        ({"episodes": [None]}, TypeError, "each of episodes must be"),
        ({"output": 5}, TypeError, "output must be"),
        ({"output": None}, TypeError, "output must be"),
    ],
)
def test_wrong_options_are_told_when_the_plan_is_made(options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        reencode_ddra(col("shard"), **({"output": "after.mp4"} | options))


def test_shard_of_a_wrong_type_is_told_when_the_plan_is_made() -> None:
    with pytest.raises(TypeError, match="shard must be"):
        reencode_ddra(5, output="after.mp4")  # type: ignore[arg-type]


@pytest.mark.parametrize("column", ["shard", "output", "episodes"])
def test_columns_of_wrong_types_are_type_errors(tmp_path: Path, column: str) -> None:
    columns = {
        "shard": [str(source(tmp_path / "before.mp4"))],
        "output": [f"{tmp_path}/after.mp4"],
        "episodes": [[0.0]],
    }
    rows = daft.from_pydict(columns | {column: [5]})
    report = reencode_ddra(col("shard"), output=col("output"), episodes=col("episodes"), on_error="null", **QUICK)
    with pytest.raises(Exception, match=f"{column} must be"):
        rows.select(report).collect()
