# SPDX-License-Identifier: Apache-2.0
"""What people who do this job trip over: each trouble with an input of its own.

The frames are either numbered drawings, which tell by themselves whether they are the right ones, or are held against
PyAV's sequential decode.
"""

from __future__ import annotations

import os
import random
import resource
import threading
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import daft
import numpy as np
import numpy.typing as npt
import pytest
from daft import DataType, col

import container_surgery as surgery
from daft_sparsevideo import VideoDecoder, _core, decode_frames, set_thread_budget
from daft_sparsevideo.errors import FrameOutOfRangeError, ShardFormatError
from encoding import encode
from oracle import Picture, assert_same_picture, decode_all, decode_sequentially, digest_of, rgb_of
from own_process import run_alone
from scenes import draw_scene, number_of, numbered, solid
from small_clip import make_clip, rotate
from streams import STREAMS, stream_path

BY_NAME = {stream.name: stream for stream in STREAMS}


def numbered_clip(path: Path, frames: int, **options: Any) -> Path:
    return encode(path, (numbered(i) for i in range(frames)), **options)


def decode_column(columns: dict[str, Any], **options: Any) -> list[Picture | None]:
    """The decoded rows of a query."""
    frame = daft.from_pydict(columns).select(
        decode_frames(col("shard"), col("offset"), col("timestamp"), **options).alias("picture")
    )
    pictures: list[Picture | None] = frame.to_pydict()["picture"]
    return pictures


def numbers(pictures: list[Picture | None]) -> list[int | None]:
    return [None if picture is None else number_of(picture) for picture in pictures]


def assert_each_frame_alone(path: Path, *, seed: int = 0) -> None:
    """Every frame, asked for alone, in random order, of one reused decoder, is that of the sequential decode."""
    oracle, decoder = decode_all(path), VideoDecoder(path)
    assert len(decoder) == len(oracle.frames)
    order = list(range(len(decoder)))
    random.Random(seed).shuffle(order)
    for index in order:
        assert_same_picture(decoder.get_frames_at([index]).data[0], oracle, index, "asked for alone")


# ---- times


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_frame_of_fifty_drifting_episodes_is_its_own(tmp_path: Path, dtype: type[np.floating[Any]]) -> None:
    rng = np.random.default_rng(1)
    lengths = rng.integers(7, 18, 50).tolist()
    shard = numbered_clip(tmp_path / "shard.mp4", sum(lengths), params="keyint=60:bframes=3")
    offset, first, rows = dtype(0), 0, []
    for length in lengths:
        rows += [(float(offset), float(dtype(k) / dtype(30)), first + k) for k in range(length)]
        offset = dtype(offset + dtype(length) / dtype(30))  # accumulated, as data set writers do
        first += length
    chosen = [rows[k] for k in rng.permutation(len(rows))]
    arrow = DataType.float32() if dtype is np.float32 else DataType.float64()
    frame = daft.from_pydict({"offset": [r[0] for r in chosen], "timestamp": [r[1] for r in chosen]})
    pictures = frame.select(
        decode_frames(str(shard), col("offset").cast(arrow), col("timestamp").cast(arrow)).alias("picture")
    ).to_pydict()["picture"]
    assert numbers(pictures) == [row[2] for row in chosen]


@pytest.mark.parametrize("match", ["nearest", "played"])
@pytest.mark.parametrize("nudge", ["one ulp above", "exact", "1e-7 below"])
def test_episode_boundary_shows_no_colour_of_the_neighbours(tmp_path: Path, nudge: str, match: str) -> None:
    colours = [(200, 30, 30), (30, 200, 30), (30, 30, 200)]
    pictures = [picture for colour in colours for picture in solid(colour, 20)]
    shard = encode(tmp_path / "three.mp4", pictures, params="keyint=60:bframes=3:scenecut=0")
    exact = 20 / 30
    offset = {"one ulp above": float(np.nextafter(exact, 1)), "exact": exact, "1e-7 below": exact - 1e-7}[nudge]
    got = decode_column(
        {"shard": [str(shard)] * 20, "offset": [offset] * 20, "timestamp": [k / 30 for k in range(20)]}, match=match
    )
    oracle = decode_all(shard)
    for k, picture in enumerate(got):
        assert picture is not None
        assert_same_picture(picture, oracle, 20 + k)
        assert picture[-10:, :, :].reshape(-1, 3).mean(0).argmax() == 1, "green, and green alone"


def test_last_frame_lasts_for_its_interval_and_beyond_is_an_error_of_that_row_alone(tmp_path: Path) -> None:
    shard = numbered_clip(
        tmp_path / "ntsc.mp4", 30, rate=30, time_base=Fraction(1, 30000), pts=[1001 * i for i in range(30)]
    )
    asked = [29 / 29.97, 30 / 29.97 - 1e-6, 30 / 29.97, 31 / 29.97, 0.0]
    columns = {"shard": [str(shard)] * 5, "offset": [0.0] * 5, "timestamp": asked}
    assert numbers(decode_column(columns, on_error="null")) == [29, 29, 29, None, 0]
    assert numbers(decode_column(columns, on_error="null", match="played")) == [29, 29, 29, None, 0]
    with pytest.raises(FrameOutOfRangeError, match=r"1\.0343"):
        decode_column(columns)
    with pytest.raises(IndexError):
        VideoDecoder(shard).get_frames_played_at([31 / 29.97])


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv", "clip.ts"])
def test_each_tick_maps_to_its_frame(tmp_path: Path, name: str) -> None:
    path = numbered_clip(tmp_path / name, 10, params="bframes=2")
    index = _core.Shard(str(path)).index
    tick = Fraction(*index.time_base)
    nearest, played = VideoDecoder(path), VideoDecoder(path, match="played")
    for k, pts in enumerate(index.frame_pts.tolist()):
        before, exact, after = (float((pts + d) * tick) for d in (-1, 0, 1))
        assert [number_of(p) for p in nearest.get_frames_played_at([before, exact, after]).data] == [k, k, k]
        assert [number_of(p) for p in played.get_frames_played_at([exact, after]).data] == [k, k]
        assert number_of(played.get_frames_played_at([before]).data[0]) == max(k - 1, 0)


def test_float32_time_of_a_late_start_is_accepted(tmp_path: Path) -> None:
    path = numbered_clip(
        tmp_path / "late.mp4", 20, time_base=Fraction(1, 30000), pts=[2002 + 1001 * i for i in range(20)]
    )
    begin = np.float32(0.066733)
    assert number_of(VideoDecoder(path).get_frames_played_at(np.array([begin])).data[0]) == 0
    times = (np.arange(20) * np.float32(1001 / 30000) + begin).astype(np.float32)
    assert [number_of(p) for p in VideoDecoder(path).get_frames_played_at(times).data] == list(range(20))


def test_float32_offset_of_forty_thousand_seconds_takes_the_nearest_frame(tmp_path: Path) -> None:
    start = 40_000 * 30
    path = numbered_clip(tmp_path / "far.mkv", 40, pts=list(range(start, start + 40)))
    begin = VideoDecoder(path).metadata.begin_s
    assert begin == pytest.approx(40_000, abs=1e-3)
    sums = (40_000 + np.arange(40) / 30).astype(np.float32)  # spaced by 4 ms: up to 2 ms off, both ways
    assert np.abs(sums.astype(np.float64) - (40_000 + np.arange(40) / 30)).max() > 1e-3
    frame = daft.from_pydict({"time": sums.tolist()}).select(col("time").cast(DataType.float32()))
    for match in ("nearest", "played"):
        pictures = frame.select(decode_frames(str(path), col("time"), 0.0, match=match).alias("p")).to_pydict()["p"]
        assert numbers(pictures) == list(range(40))


@pytest.mark.parametrize("kind", ["mp4 without edit list", "mp4 with edit list", "mkv", "ts"])
def test_times_are_those_of_a_stream_that_starts_late(tmp_path: Path, kind: str) -> None:
    late = [300 + i for i in range(30)]
    if kind == "mp4 without edit list":
        made = numbered_clip(
            tmp_path / "f.mp4",
            30,
            params="keyint=10:bframes=2",
            container_options={"movflags": "frag_keyframe+empty_moov"},
        )
        path = surgery.shift_fragments(made, tmp_path / "late.mp4", 10 * 15360)
    else:
        name = {"mp4 with edit list": "late.mp4", "mkv": "late.mkv", "ts": "late.ts"}[kind]
        path = numbered_clip(tmp_path / name, 30, params="keyint=10:bframes=2", pts=late)
    decoder, oracle = VideoDecoder(path), decode_all(path)
    begin = decoder.metadata.begin_s
    assert begin >= 10
    assert begin == pytest.approx(oracle.seconds_at(0), abs=1e-9)
    batch = decoder.get_frames_played_at([begin + k / 30 for k in (17, 0, 29, 16)])
    assert [number_of(picture) for picture in batch.data] == [17, 0, 29, 16]
    with pytest.raises(FrameOutOfRangeError):
        decoder.get_frames_played_at([0.0])


def test_discarded_pictures_of_an_edit_list_stay_references(tmp_path: Path) -> None:
    whole = numbered_clip(tmp_path / "whole.mp4", 40, params="bframes=3:keyint=12")
    path = surgery.cut_to(whole, tmp_path / "cut.mp4", 17 * 512, 17 * 1000 // 30)
    decoder, shard = VideoDecoder(path), _core.Shard(str(path))
    assert len(decoder) == 23
    discarded = {int(p) for p in np.flatnonzero(shard.index.picture_flags & 4)}
    assert 0 in discarded, "the key picture leads and is not shown"
    assert discarded & set(shard.plan(np.array([0])).closure.tolist())
    assert_each_frame_alone(path)
    assert [number_of(p) for p in decoder.get_frames_played_at([0.0, 5 / 30, 22 / 30]).data] == [17, 22, 39]


# ---- requests


def test_rows_come_back_in_their_order_with_repeats_nulls_and_near_equals(tmp_path: Path) -> None:
    shard = str(numbered_clip(tmp_path / "clip.mp4", 60, params="keyint=20:bframes=3"))
    wanted: list[int | None] = [44, 3, None, 3, 59, 44, 0, None, 3]
    times = [None if n is None else n / 30 for n in wanted]
    times[3] = 3 / 30 + 1e-9
    times[8] = float(np.float32(3 / 30))
    assert numbers(decode_column({"shard": [shard] * 9, "offset": [0.0] * 9, "timestamp": times})) == wanted
    batch = VideoDecoder(shard).get_frames_played_at([0.1, 0.1 + 1e-9, 0.1, float(np.float32(0.1))])
    assert (batch.stats.requested, batch.stats.unique) == (4, 1)
    assert batch.stats.reconstructed == VideoDecoder(shard).plan_at([3]).reconstructed


@pytest.mark.parametrize("size", [{}, {"height": 64, "width": 96}])
def test_empty_batch_keeps_the_type(tmp_path: Path, size: dict[str, Any]) -> None:
    shard = str(numbered_clip(tmp_path / "clip.mp4", 5))
    rows = daft.from_pydict({"t": [0.1, 0.2]})
    picture = decode_frames(shard, 0.0, col("t"), **size).alias("picture")
    empty, full = rows.where("t > 1").select(picture), rows.select(picture)
    assert empty.to_pydict() == {"picture": []}
    assert empty.schema()["picture"].dtype == full.schema()["picture"].dtype == DataType.image("RGB", *size.values())


@pytest.mark.parametrize("name", ["hevc_open_gop", "hevc_bframes16", "h264_ref16", "h264_mbaff_temporal"])
def test_answer_depends_on_the_request_alone(name: str) -> None:
    path = stream_path(BY_NAME[name])
    oracle, decoder = decode_all(path), VideoDecoder(path)
    count = len(decoder)
    requests = [[count - 2], [1], [count - 1, 0], [count // 2], [3], [count - 5], [0]]
    requests += [np.random.default_rng(seed).permutation(count)[:9].tolist() for seed in range(12)]
    for request in requests:
        fresh = VideoDecoder(path.read_bytes()).get_frames_at(request).data
        reused = decoder.get_frames_at(request).data
        np.testing.assert_array_equal(reused, fresh)
        for picture, index in zip(reused, request, strict=True):
            assert_same_picture(picture, oracle, index)


# ---- streams


@pytest.mark.parametrize(
    "name",
    ["h264_open_gop", "h264_open_gop_bframes7", "h264_intra_refresh", "h264_intra_refresh_bframes", "hevc_open_gop"],
)
def test_each_frame_alone_is_exact_where_key_does_not_mean_start(name: str) -> None:
    path = stream_path(BY_NAME[name])
    assert_each_frame_alone(path)
    if "intra_refresh" in name:
        shard = _core.Shard(str(path))
        late = shard.plan(np.array([shard.index.num_frames - 1]))
        assert np.count_nonzero(shard.index.picture_flags & 1) > 1
        assert late.closure.min() == 0, "later key packets are not complete: the picture needs the first one"


def test_audio_may_come_first(tmp_path: Path) -> None:
    path = numbered_clip(tmp_path / "sound.mp4", 30, params="bframes=2", extra_streams="audio_first")
    with av.open(str(path)) as file:
        assert [stream.type for stream in file.streams] == ["audio", "video"]
    decoder = VideoDecoder(path)
    assert [number_of(p) for p in decoder.get_frames_at([29, 0, 13]).data] == [29, 0, 13]


@pytest.mark.parametrize("container", ["mp4", "mkv"])
@pytest.mark.parametrize("default", [0, 1])
def test_stream_marked_as_default_is_the_one_of_two(tmp_path: Path, container: str, default: int) -> None:
    """The rule is that of FFmpeg's av_find_best_stream: default first, then the one with most bits and frames."""
    streams = [numbered(i, 96, 64) for i in range(12)], [numbered(1000 + i, 160, 96) for i in range(12)]
    path = surgery.with_two_videos(tmp_path / f"two.{container}", *streams, default=default)
    with av.open(str(path)) as file:
        best = file.streams.best("video")
        assert best is not None
        assert best.index == default
    decoder = VideoDecoder(path)
    assert decoder.metadata.width == (96, 160)[default]
    assert [number_of(p) for p in decoder.get_frames_at([7, 2]).data] == [1000 * default + 7, 1000 * default + 2]


def test_cover_picture_is_never_the_video(tmp_path: Path) -> None:
    cover = np.full((480, 640, 3), (250, 10, 10), np.uint8)
    path = surgery.with_cover(tmp_path / "cover.mp4", [numbered(i) for i in range(12)], cover)
    with av.open(str(path)) as file:
        assert len(file.streams.video) == 2
    decoder = VideoDecoder(path)
    assert (len(decoder), decoder.metadata.width) == (12, 96)
    assert [number_of(p) for p in decoder.get_frames_at([11, 0]).data] == [11, 0]


def test_reorder_depth_that_is_never_stated_loses_no_frame(tmp_path: Path) -> None:
    """The first GOP has no B pictures, later ones a pyramid, and no bitstream restriction tells that they will come."""
    from coded_facts import facts, without_bitstream_restriction

    stated = numbered_clip(
        tmp_path / "stated.h264",
        90,
        params="keyint=30:scenecut=0:bframes=3:b-adapt=0:b-pyramid=normal",
        picture_types="I" + "P" * 29,
    )
    unstated = tmp_path / "unstated.h264"
    unstated.write_bytes(without_bitstream_restriction(stated.read_bytes()))
    seen = facts(stated)
    assert (seen.frames, seen.idr) == (90, 3)
    assert seen.longest_b_run == 3
    decoder, oracle = VideoDecoder(unstated), decode_all(stated)
    assert len(decoder) == 90
    for request in ([89], [0], [31, 30, 32], [60, 59, 61, 2], list(range(28, 36)), [45]):
        batch = decoder.get_frames_at(request)
        assert [number_of(picture) for picture in batch.data] == request
        for picture, index in zip(batch.data, request, strict=True):
            assert_same_picture(picture, oracle, index)


@pytest.mark.parametrize("name", ["raw.h264", "raw.hevc", "clip.avi"])
def test_missing_pts_are_counted_from_the_frame_rate(tmp_path: Path, name: str) -> None:
    codec = "libx265" if name.endswith("hevc") else "libx264"
    params = "bframes=3:keyint=20:b-adapt=0:scenecut=0" + (":log-level=error" if codec == "libx265" else "")
    path = numbered_clip(tmp_path / name, 50, codec=codec, params=params, rate=25)
    decoder = VideoDecoder(path)
    assert [number_of(p) for p in decoder.get_frames_at(range(50)).data] == list(range(50))
    assert_each_frame_alone(path)
    begin = decoder.metadata.begin_s
    rate = decoder.metadata.average_fps
    assert rate == 25
    np.testing.assert_allclose(decoder.get_frames_at(range(50)).pts_s, begin + np.arange(50) / rate, atol=1e-6)
    times = [begin + k / rate for k in (49, 3, 48, 20)]
    assert [number_of(p) for p in decoder.get_frames_played_at(times).data] == [49, 3, 48, 20]


@pytest.mark.parametrize("codec", ["libx264", "libx265"])
def test_single_missing_pts_is_filled_and_moves_no_other(tmp_path: Path, codec: str) -> None:
    params = "bframes=0:keyint=12" + (":log-level=error" if codec == "libx265" else "")
    whole = numbered_clip(tmp_path / "whole.ts", 36, codec=codec, params=params, rate=25)
    path = surgery.without_pts(whole, tmp_path / "gap.ts", 17)
    full, decoder = VideoDecoder(whole), VideoDecoder(path)
    batch = decoder.get_frames_at(range(36))
    assert [number_of(picture) for picture in batch.data] == list(range(36))
    np.testing.assert_allclose(batch.pts_s, full.get_frames_at(range(36)).pts_s, atol=1e-6)
    assert_each_frame_alone(path)


def repeat_some(pts: list[int]) -> list[int]:
    return [pts[k - 1] if k in (8, 9, 20) else t for k, t in enumerate(pts)]


def swap_some(pts: list[int]) -> list[int]:
    swapped = list(pts)
    for a, b in ((5, 6), (14, 16)):
        swapped[a], swapped[b] = pts[b], pts[a]
    return swapped


@pytest.mark.parametrize("container", ["mp4", "mkv"])
@pytest.mark.parametrize("change", [repeat_some, swap_some])
def test_odd_timestamps_do_not_move_pixels(
    tmp_path: Path, change: Callable[[list[int]], list[int]], container: str
) -> None:
    made = numbered_clip(tmp_path / "even.mp4", 30, params="bframes=2:keyint=10")
    path = surgery.with_pts(made, tmp_path / f"odd.{container}", change)
    decoder = VideoDecoder(path)
    rng = np.random.default_rng(2)
    for _ in range(8):
        request = rng.permutation(30)[:7].tolist()
        assert [number_of(picture) for picture in decoder.get_frames_at(request).data] == request
    assert_each_frame_alone(path)
    if change is swap_some:  # a time is looked up where it is written, not where it would have been
        batch = VideoDecoder(path).get_frames_played_at(decoder.get_frames_at([5, 6, 14, 16]).pts_s)
        assert [number_of(picture) for picture in batch.data] == [5, 6, 14, 16]


def test_a_codec_that_is_not_decoded_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = numbered_clip(tmp_path / "clip.mkv", 5, codec="ffv1")
    with pytest.raises(ShardFormatError, match="ffv1"):
        VideoDecoder(path)


# ---- colours and shapes

MATRICES = {"601": "smpte170m", "709": "bt709", "2020": "bt2020nc"}
AV1_MATRICES = {"601": 6, "709": 1, "2020": 9}
COLOURS = [(full, matrix) for full in (False, True) for matrix in MATRICES] + [(False, "")]


def coloured_clip(folder: Path, codec: str, *, full: bool, matrix: str) -> Path:
    params = (
        f"bframes=0:keyint=3:range={'pc' if full else 'tv'}"
        if codec == "libx264"
        else f"range={'full' if full else 'limited'}"
    )
    if codec == "libx265":
        params += ":bframes=0:log-level=error"
    if codec == "libsvtav1":
        params = f"color-range={int(full)}"
    if matrix and codec == "libsvtav1":
        params += f":matrix-coefficients={AV1_MATRICES[matrix]}"
    elif matrix:
        params += f":colormatrix={MATRICES[matrix]}"
    pix_fmt = "yuvj420p" if full and codec != "libsvtav1" else "yuv420p"
    name = f"{codec}-{'full' if full else 'limited'}-{matrix or 'untagged'}.mp4"
    return encode(folder / name, draw_scene("steady", 3, 96, 64), codec=codec, params=params, pix_fmt=pix_fmt)


@pytest.mark.parametrize("codec", ["libx264", "libx265", "libsvtav1"])
def test_range_and_matrix_are_those_of_the_reference_conversion_on_every_path(tmp_path: Path, codec: str) -> None:
    paths = [coloured_clip(tmp_path, codec, full=full, matrix=matrix) for full, matrix in COLOURS]
    oracles = [decode_all(path) for path in paths]
    tagged = {oracle.frames[0].digest for oracle, (_, matrix) in zip(oracles, COLOURS, strict=True) if matrix}
    assert len(tagged) == 6, "the tags must matter, or this shows nothing"
    columns = {"shard": [str(p) for p in paths], "offset": [0.0] * 7, "timestamp": [1 / 30] * 7}
    own, fixed = decode_column(columns), decode_column(columns, height=64, width=96)
    small = decode_column(columns, height=30, width=50)
    for k, (path, oracle) in enumerate(zip(paths, oracles, strict=True)):
        for picture in (VideoDecoder(path).get_frames_at([1]).data[0], own[k], fixed[k]):
            assert picture is not None
            assert_same_picture(picture, oracle, 1)
        frame = list(decode_sequentially(path))[1]
        resized = frame.reformat(width=50, height=30, format="rgb24", interpolation="BILINEAR").to_ndarray()
        np.testing.assert_array_equal(small[k], resized)


@pytest.mark.parametrize(
    ("codec", "pix_fmt"),
    [("libx265", "yuv420p10le"), ("libx264", "yuv420p10le"), ("libx264", "yuv422p10le"), ("libsvtav1", "yuv420p10le")],
)
def test_ten_bits_become_proper_eight(tmp_path: Path, codec: str, pix_fmt: str) -> None:
    params = (
        "crf=10" if codec == "libsvtav1" else "crf=10:bframes=2" + (":log-level=error" if codec == "libx265" else "")
    )
    drawn = list(draw_scene("steady", 12, 96, 64))
    path = encode(tmp_path / "deep.mp4", drawn, codec=codec, params=params, pix_fmt=pix_fmt)
    assert VideoDecoder(path).metadata.pix_fmt == pix_fmt
    assert_each_frame_alone(path)
    got = VideoDecoder(path).get_frames_at(range(12)).data.astype(np.int16)
    assert np.abs(got - np.stack(drawn)).mean() < 12, "close to what was drawn: no noise"


def test_rotations_share_a_batch_by_one_switch(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "upright.mp4", frames=10)
    paths = {degrees: rotate(clip, tmp_path / f"turned{degrees}.mp4", degrees) for degrees in (90, 180, 270)}
    paths[0] = clip.path
    angles = [90, 0, 270, 180, 90]
    columns = {"shard": [str(paths[a]) for a in angles], "offset": [0.0] * 5, "timestamp": [k / 30 for k in range(5)]}
    as_coded, turned = decode_column(columns), decode_column(columns, apply_rotation=True)
    for k, degrees in enumerate(angles):
        np.testing.assert_array_equal(as_coded[k], clip.frames[k])
        np.testing.assert_array_equal(turned[k], np.rot90(clip.frames[k], -degrees // 90))
    frame = daft.from_pydict(columns).select(
        decode_frames(col("shard"), 0.0, col("timestamp"), height=64, width=96, apply_rotation=True).alias("picture")
    )
    assert frame.schema()["picture"].dtype == DataType.image("RGB", 64, 96)
    assert {picture.shape for picture in frame.to_pydict()["picture"]} == {(64, 96, 3)}


@pytest.mark.parametrize("codec", ["libx264", "libx265", "libsvtav1"])
@pytest.mark.parametrize(("width", "height"), [(98, 58), (650, 650), (360, 640), (853, 479)])
def test_display_crop_is_applied_to_odd_sizes(tmp_path: Path, codec: str, width: int, height: int) -> None:
    # A crop of 4:2:0 has even sizes, but in AV1.
    pix_fmt = "yuv444p" if width % 2 and codec != "libsvtav1" else "yuv420p"
    params = "" if codec == "libsvtav1" else "bframes=2:keyint=4" + (":log-level=error" if codec == "libx265" else "")
    pictures = list(draw_scene("steady", 6, width, max(height, 64) if codec == "libsvtav1" else height))
    height = len(pictures[0])  # SVT-AV1 makes nothing smaller than 64
    options = {"preset": "12", "g": "4"} if codec == "libsvtav1" else {"preset": "ultrafast"}
    path = encode(tmp_path / "odd.mp4", pictures, codec=codec, params=params, pix_fmt=pix_fmt, options=options)
    batch = VideoDecoder(path).get_frames_at([5, 2])
    assert batch.data.shape == (2, height, width, 3)
    oracle = decode_all(path)
    assert_same_picture(batch.data[0], oracle, 5)
    assert_same_picture(batch.data[1], oracle, 2)
    edges = np.concatenate([batch.data[0][-2:].reshape(-1, 3), batch.data[0][:, -2:].reshape(-1, 3)]).astype(np.int16)
    drawn = np.concatenate([pictures[5][-2:].reshape(-1, 3), pictures[5][:, -2:].reshape(-1, 3)])
    assert np.abs(edges - drawn).mean() < 40, "the edge is what was drawn, not padding"


# ---- resources


def decode_on_threads(folder: str, workers: int, budget: int) -> dict[str, Any]:
    """64 shards on `workers` threads, with a low limit of processes; how many threads there ever were."""
    set_thread_budget(budget)
    resource.setrlimit(resource.RLIMIT_NPROC, (200, 200))
    paths = sorted(Path(folder).iterdir())
    results: dict[str, str] = {}
    most = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.is_set():
            most = max(most, len(list(Path("/proc/self/task").iterdir())))

    def work(mine: list[Path]) -> None:
        for path in mine:
            batch = VideoDecoder(path).get_frames_at([55, 1, 30, 44, 12])
            results[path.name] = digest_of(batch.data).hex()

    before = len(list(Path("/proc/self/task").iterdir()))
    watcher = threading.Thread(target=watch)
    watcher.start()
    threads = [threading.Thread(target=work, args=(paths[k::workers],)) for k in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    watcher.join()
    return {"results": results, "extra": most - before - workers - 1}


def test_threads_stay_within_one_budget_and_pixels_the_same(tmp_path: Path) -> None:
    clip = numbered_clip(tmp_path / "clip.mp4", 60, params="keyint=10:bframes=2")
    folder = tmp_path / "shards"
    folder.mkdir()
    for k in range(64):
        (folder / f"{k:02}.mp4").write_bytes(clip.read_bytes())
    wanted = digest_of(
        np.stack([rgb_of(f) for i, f in enumerate(decode_sequentially(clip)) if i in (1, 12, 30, 44, 55)])[
            [4, 0, 2, 3, 1]
        ]
    )
    for workers, budget in ((8, 1), (8, 2), (2, 4)):
        seen = run_alone(decode_on_threads, str(folder), workers, budget)
        assert set(seen["results"].values()) == {wanted.hex()}
        assert len(seen["results"]) == 64
        assert seen["extra"] <= budget


def decode_many_shards(folder: str, descriptors: int) -> dict[str, Any]:
    """Every shard of a folder once, in random order, under a low limit of descriptors."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    paths = [str(path) for path in Path(folder).iterdir()]
    random.Random(4).shuffle(paths)
    got: dict[str, int | None] = {}
    most_open, resident_kib = 0, []
    for k in range(0, len(paths), 250):
        some = paths[k : k + 250]
        pictures = decode_column(
            {"shard": some, "offset": [0.0] * len(some), "timestamp": [4 / 30] * len(some)}, on_error="null"
        )
        got |= {Path(path).stem: number for path, number in zip(some, numbers(pictures), strict=True)}
        most_open = max(most_open, len(list(Path("/proc/self/fd").iterdir())))
        resident_kib.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return {"got": got, "most_open": most_open, "resident_kib": resident_kib}


def test_two_thousand_shards_in_random_order_leave_memory_and_descriptors_flat(tmp_path: Path) -> None:
    whole = numbered_clip(tmp_path / "clip.mp4", 8, params="keyint=8:bframes=2").read_bytes()
    folder = tmp_path / "shards"
    folder.mkdir()
    for k in range(2000):
        (folder / f"{k}.mp4").write_bytes(whole[: len(whole) // 2] if k % 10 == 3 else whole)
    seen = run_alone(decode_many_shards, str(folder), 256)
    assert seen["got"] == {str(k): None if k % 10 == 3 else 4 for k in range(2000)}
    assert seen["most_open"] < 200
    assert seen["resident_kib"][-1] - seen["resident_kib"][1] < 32 << 10, seen["resident_kib"]


def fork_and_decode(path: str, frames: int) -> list[int]:
    """Decode, fork four workers that decode from the same shard at once, decode again; their exit codes."""
    oracle, decoder = decode_all(Path(path)), VideoDecoder(path)

    def right(seed: int) -> bool:
        asked = np.random.default_rng(seed).integers(0, frames, 12).tolist()
        pictures = decoder.get_frames_at(asked).data
        return all(digest_of(p) == oracle.frames[i].digest for p, i in zip(pictures, asked, strict=True))

    assert right(0)
    children = []
    for seed in range(1, 5):
        child = os.fork()
        if child == 0:
            os._exit(0 if all(right(100 * seed + k) for k in range(10)) else 1)
        children.append(child)
    assert all(right(1000 + k) for k in range(10))
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def test_forked_workers_share_no_file_position(tmp_path: Path) -> None:
    path = encode(tmp_path / "clip.mp4", draw_scene("mixed", 60, 96, 64), params="keyint=15:bframes=3")
    assert run_alone(fork_and_decode, str(path), 60, timeout_s=60) == [0, 0, 0, 0]


# ---- codecs without a reference graph


@pytest.mark.parametrize(
    ("codec", "name", "options"),
    [
        ("mpeg4", "clip.mp4", {"g": "12", "bf": "2", "b": "400k"}),
        ("mpeg4", "clip.avi", {"g": "10", "b": "400k"}),
        ("libvpx-vp9", "clip.mkv", {"g": "15", "b": "300k", "auto-alt-ref": "1", "lag-in-frames": "12"}),
        ("mjpeg", "clip.mov", {}),
        ("mpeg2video", "clip.ts", {"g": "12", "bf": "2", "b": "600k"}),
        ("mpeg4", "interlaced.mkv", {"bf": "2", "g": "10", "flags": "+ildct+ilme"}),
    ],
)
def test_codecs_without_a_graph_are_exact_too(tmp_path: Path, codec: str, name: str, options: dict[str, str]) -> None:
    pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
    path = encode(tmp_path / name, draw_scene("mixed", 40, 96, 64), codec=codec, options=options, pix_fmt=pix_fmt)
    index = _core.Shard(str(path)).index
    assert not index.has_graph
    assert index.fallback_reason
    assert_each_frame_alone(path)
    decoder, oracle = VideoDecoder(path), decode_all(path)
    for seed in range(6):
        request: npt.NDArray[np.int64] = np.random.default_rng(seed).integers(0, 40, 9)
        for picture, i in zip(decoder.get_frames_at(request).data, request.tolist(), strict=True):
            assert_same_picture(picture, oracle, i)
