# SPDX-License-Identifier: Apache-2.0
"""Damaged files give errors or exact pixels: never a crash, never silence, never a substituted picture."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import daft
import numpy as np
import pytest
from daft import col

import container_surgery as surgery
from daft_sparsevideo import VideoDecoder, _core, decode_frames
from daft_sparsevideo.errors import FrameDecodeError, FrameOutOfRangeError, ShardFormatError, SparseVideoError
from encoding import encode
from oracle import Oracle, Picture, assert_same_picture, decode_all, digest_of
from scenes import draw_scene
from test_counts import union_closure

FRAMES, GOP = 60, 10
CODECS = ["libx264", "libx265"]


def six_gops(path: Path, codec: str, container_options: dict[str, str] | None = None) -> Path:
    """60 frames, 2 s, in six closed GOPs of pictures of a kilobyte or more."""
    params = f"keyint={GOP}:min-keyint=1:scenecut=0:bframes=2:b-adapt=0:open-gop=0:crf=14"
    if codec == "libx265":
        params += ":log-level=error"
    return encode(
        path,
        draw_scene("mixed", FRAMES, 128, 96),
        codec=codec,
        params=params,
        container_options=container_options or {},
    )


def ask_each(path: Path, original: Oracle) -> list[Picture | None]:
    """Every frame by its time, alone and in random order, on one reused decoder; None where it is an error."""
    decoder = VideoDecoder(path, tolerance_s=0.002)
    pictures: list[Picture | None] = [None] * len(original.frames)
    errors: dict[float, SparseVideoError] = {}
    order = list(range(len(pictures)))
    random.Random(1).shuffle(order)
    for index in order:
        time_s = original.seconds_at(index)
        try:
            pictures[index] = decoder.get_frames_played_at([time_s]).data[0]
        except (FrameDecodeError, FrameOutOfRangeError) as error:
            errors[time_s] = error
    for time_s, raised in errors.items():
        assert path.name in str(raised)
        assert raised.time_s == pytest.approx(time_s, abs=1e-3)
    return pictures


def frames_that_need(shard: _core.Shard, pictures: set[int]) -> set[int]:
    """The frames whose closure holds one of `pictures`."""
    index = shard.index
    return {frame for frame in range(index.num_frames) if union_closure(index, [frame]) & pictures}


def check(path: Path, original: Oracle, harmed: set[int], *, certainly: bool = True) -> None:
    """Frames outside `harmed` are exact; those in it are errors (or, where damage may go unseen, exact)."""
    pictures = ask_each(path, original)
    columns: dict[str, Any] = {"t": [original.seconds_at(index) for index in range(len(pictures))]}
    column = decode_frames(str(path), 0.0, col("t"), on_error="null", tolerance_s=0.002).alias("picture")
    rows = daft.from_pydict(columns).select(column).to_pydict()["picture"]
    for index, (alone, row) in enumerate(zip(pictures, rows, strict=True)):
        for picture in (alone, row):
            if index not in harmed:
                assert picture is not None, f"frame {index} needs nothing that is damaged"
            if picture is not None:
                assert not (certainly and index in harmed), f"frame {index} is a substituted picture"
                assert_same_picture(picture, original, index)


def flip_200_bytes(source: Path, target: Path, victim: int) -> Path:
    """Invert 200 bytes of slice data of the picture that is number `victim` in decode order."""

    def flip(number: int, data: bytes) -> bytes:
        if number != victim:
            return data
        assert len(data) > 300
        return data[:60] + bytes(255 - byte for byte in data[60:260]) + data[260:]

    return surgery.with_packets(source, target, flip)


@pytest.mark.parametrize("container", ["mp4", "mkv"])
def test_flipped_bytes_harm_only_what_needs_them(tmp_path: Path, container: str) -> None:
    whole = six_gops(tmp_path / f"whole.{container}", "libx264")
    shard, original = _core.Shard(str(whole)), decode_all(whole)
    victim = 2 * GOP  # the intra picture of the third GOP: its decoder notices
    path = flip_200_bytes(whole, tmp_path / f"flipped.{container}", victim)
    assert decode_all(path).complaints
    harmed = frames_that_need(shard, {victim})
    assert harmed == set(range(2 * GOP, 3 * GOP))
    check(path, original, harmed)
    row = decode_frames(str(path), 0.0, col("t")).alias("picture")
    harmed_s = original.seconds_at(min(harmed))
    with pytest.raises(FrameDecodeError, match=f"{harmed_s:.6f}.*flipped") as raised:
        daft.from_pydict({"t": [0.0, harmed_s]}).select(row).collect()
    assert raised.value.shard == str(path)


@pytest.mark.parametrize("codec", CODECS)
def test_flipped_bytes_that_no_decoder_notices_look_as_they_do_to_pyav(tmp_path: Path, codec: str) -> None:
    """Entropy coded data has no checksum: most of its values decode to some picture. It is the same one everywhere."""
    whole = six_gops(tmp_path / "whole.mkv", codec)
    shard, original = _core.Shard(str(whole)), decode_all(whole)
    victim = next(p for p in range(2 * GOP + 1, 3 * GOP) if not shard.index.picture_flags[p] & 8)
    path = flip_200_bytes(whole, tmp_path / "flipped.mkv", victim)
    spoilt = decode_all(path)
    assert spoilt.complaints == ()
    harmed = frames_that_need(shard, {victim})
    assert 3 <= len(harmed) < GOP
    for index, picture in enumerate(ask_each(path, original)):
        if index not in harmed:
            assert picture is not None
        if picture is not None:
            assert_same_picture(picture, spoilt, index)
            assert (spoilt.frames[index].digest != original.frames[index].digest) == (index in harmed)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("container", ["mp4", "mkv", "ts"])
def test_file_cut_at_sixty_percent_gives_what_is_left(tmp_path: Path, codec: str, container: str) -> None:
    options = {"movflags": "faststart"} if container == "mp4" else {}
    whole = six_gops(tmp_path / f"whole.{container}", codec, options)
    shard, original = _core.Shard(str(whole)), decode_all(whole)
    data = whole.read_bytes()
    cut = len(data) * 6 // 10
    path = tmp_path / f"cut.{container}"
    path.write_bytes(data[:cut])
    ends = shard.index.picture_position + shard.index.picture_size * (1.3 if container == "ts" else 1)
    lost = {int(p) for p in np.flatnonzero(ends + 400 > cut)}  # 400: a container may want to see what follows
    harmed = frames_that_need(shard, lost)
    assert 15 < len(harmed) < 35
    check(path, original, harmed, certainly=False)
    pictures = ask_each(path, original)
    assert pictures[FRAMES - 1] is None
    assert pictures[0] is not None


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", ["taken out", "cut after its header", "header cut"])
def test_picture_missing_from_a_closure_is_an_error(tmp_path: Path, codec: str, kind: str) -> None:
    whole = six_gops(tmp_path / "whole.mkv", codec)
    shard, original = _core.Shard(str(whole)), decode_all(whole)
    victim = next(p for p in range(3 * GOP + 1, 4 * GOP) if not shard.index.picture_flags[p] & 8)
    kept = {"taken out": 0, "cut after its header": 60, "header cut": 6}[kind]

    def cut(number: int, data: bytes) -> bytes:
        return data[:kept] if number == victim else data

    path = surgery.with_packets(whole, tmp_path / "missing.mkv", cut)
    check(path, original, frames_that_need(shard, {victim}))


@pytest.mark.parametrize("codec", CODECS)
def test_reference_missing_outside_a_closure_is_an_error_or_exact_pixels(tmp_path: Path, codec: str) -> None:
    """A middle B picture that some targets pass over by its header alone: without it their state may be wrong."""
    params = "keyint=30:scenecut=0:bframes=7:b-adapt=0:open-gop=0:crf=16"
    params += ":ref=1:log-level=error" if codec == "libx265" else ":b-pyramid=strict"
    whole = encode(tmp_path / "whole.mkv", draw_scene("mixed", 60, 96, 64), codec=codec, params=params)
    shard, original = _core.Shard(str(whole)), decode_all(whole)
    references = [p for p in range(1, 20) if not shard.index.picture_flags[p] & 8]
    victim = min(references, key=lambda p: len(frames_that_need(shard, {p})))
    harmed = frames_that_need(shard, {victim})
    assert any(shard.plan(np.array([frame])).stats.state_only for frame in range(30))
    path = surgery.with_packets(whole, tmp_path / "gap.mkv", lambda number, data: b"" if number == victim else data)
    gap = decode_all(path)
    seen = {frame.pts: frame.digest for frame in gap.frames}
    for index, picture in enumerate(ask_each(path, original)):
        if index >= 30:
            assert picture is not None, "the next GOP does not know of it"
        if picture is not None and index not in harmed:
            assert_same_picture(picture, original, index)
        elif picture is not None:  # it refers to other pictures now, as it does in any decoder
            assert digest_of(picture) == seen[original.frames[index].pts], f"frame {index}"


def write_nothing(path: Path) -> None:
    path.write_bytes(b"")


def write_text(path: Path) -> None:
    path.write_text("this is not a video\n" * 40)


def write_noise(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(5000))


def write_without_moov(path: Path) -> None:
    surgery.without_moov(six_gops(path.with_suffix(".whole.mp4"), "libx264"), path)


def write_header_alone(path: Path) -> None:
    path.write_bytes(six_gops(path.with_suffix(".whole.mp4"), "libx264").read_bytes()[:40])


def make_folder(path: Path) -> None:
    path.mkdir()


def write_sound(path: Path) -> None:
    with av.open(str(path), "w") as out:
        stream = out.add_stream("aac", rate=48000)
        frame = av.AudioFrame.from_ndarray(np.zeros((2, 1024), np.float32), "fltp", "stereo")
        frame.sample_rate, frame.pts = 48000, 0
        out.mux(stream.encode(frame))
        out.mux(stream.encode(None))


@pytest.mark.parametrize(
    "spoil",
    [write_nothing, write_text, write_noise, write_without_moov, write_header_alone, make_folder, write_sound],
    ids=lambda spoil: str(spoil.__name__),
)
def test_file_that_is_no_video_fails_by_name_and_alone(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    bad, good = tmp_path / "spoilt.mp4", six_gops(tmp_path / "good.mp4", "libx264")
    spoil(bad)
    with pytest.raises(SparseVideoError, match=r"spoilt\.mp4") as raised:
        VideoDecoder(bad)
    assert isinstance(raised.value, (ValueError, OSError)), "the builtin that a caller expects"
    rows = daft.from_pydict({"shard": [str(good), str(bad), str(good)], "t": [0.5, 0.5, 1.5]})
    pictures = rows.select(decode_frames(col("shard"), 0.0, col("t"), on_error="null").alias("picture")).to_pydict()
    oracle = decode_all(good)
    first, nothing, last = pictures["picture"]
    assert nothing is None
    assert_same_picture(first, oracle, 15)
    assert_same_picture(last, oracle, 45)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Flip, remove, repeat or zero a few bytes anywhere."""
    spoilt = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at, length = rng.randrange(len(spoilt)), rng.choice((1, 1, 2, 8, 60))
        kind = rng.randrange(4)
        if kind == 0:
            spoilt[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del spoilt[at : at + length]
        elif kind == 2:
            spoilt[at:at] = spoilt[at : at + length]
        else:
            spoilt[at : at + length] = bytes(min(length, len(spoilt) - at))
    return bytes(spoilt)


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.ts", "a.h264", "b.mp4", "b.mkv", "b.ts", "b.hevc"])
def test_spoilt_bytes_anywhere_are_an_error_or_exact_pixels(tmp_path: Path, name: str) -> None:
    codec = "libx264" if name.startswith("a") else "libx265"
    params = "keyint=12:bframes=3" + (":log-level=error:pools=none:frame-threads=1" if codec == "libx265" else "")
    options = {"movflags": "faststart"} if name.endswith("mp4") else {}
    whole = encode(
        tmp_path / name, draw_scene("mixed", 30, 96, 64), codec=codec, params=params, container_options=options
    )
    original = decode_all(whole)
    rng = random.Random(name)
    spoilt = tmp_path / f"spoilt-{name}"
    outcomes = {"exact": 0, "as PyAV": 0, "error": 0, "no video": 0}
    for _ in range(12):
        spoilt.write_bytes(mutate(whole.read_bytes(), rng))
        decode_all.cache_clear()
        try:
            oracle = decode_all(spoilt)
        except (av.error.FFmpegError, ValueError):
            oracle = None
        try:
            decoder = VideoDecoder(spoilt)
        except ShardFormatError:
            outcomes["no video"] += 1
            continue
        right = {frame.digest for frame in original.frames}
        seen = {frame.digest for frame in oracle.frames if not frame.damaged} if oracle else set()
        order = list(range(len(decoder)))
        rng.shuffle(order)
        for index in order[:12]:
            try:
                picture = decoder.get_frames_at([index]).data[0]
            except SparseVideoError:
                outcomes["error"] += 1
                continue
            digest = digest_of(picture)
            if digest in right:
                outcomes["exact"] += 1
            else:  # damage that no decoder notices: then it must look the same to another one
                assert digest in seen, f"frame {index} of {spoilt.name} is neither the original's nor PyAV's"
                outcomes["as PyAV"] += 1
    assert outcomes["exact"] > 20, outcomes
    assert outcomes["error"] + outcomes["no video"] + outcomes["as PyAV"] > 0, outcomes


@pytest.mark.parametrize("seed", [*range(12), 213, 290])  # the last two show what is left of the picture before
def test_damaged_motion_jpeg_looks_as_in_a_decode_of_all(tmp_path: Path, seed: int) -> None:
    path = encode(tmp_path / "whole.mov", draw_scene("mixed", 20, 96, 64), codec="mjpeg", pix_fmt="yuvj422p")
    index = _core.Shard(str(path)).index
    rng, data = random.Random(seed), bytearray(path.read_bytes())
    victim = rng.randrange(2, 20)
    position, size = int(index.picture_position[victim]), int(index.picture_size[victim])
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(0, min(size, 620)) if rng.random() < 0.6 else rng.randrange(size)
        data[position + place] = rng.randrange(256)
    path.write_bytes(data)
    with av.open(str(path)) as file:
        file.streams.video[0].thread_count = 1
        shown: dict[int | None, Picture] = {}
        with contextlib.suppress(av.error.InvalidDataError):
            for frame in file.decode(video=0):
                shown[frame.pts] = frame.to_ndarray(format="rgb24")
    decoder = VideoDecoder(path)
    for number, pts in enumerate(_core.Shard(str(path)).index.frame_pts.tolist()):
        with contextlib.suppress(FrameDecodeError):
            picture = decoder.get_frames_at([number]).data[0]
            if pts in shown:
                np.testing.assert_array_equal(picture, shown[pts])
