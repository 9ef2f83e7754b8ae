# SPDX-License-Identifier: Apache-2.0
"""The structure of DDRA shards, read back: types, closures, times and colours are what was asked for, nothing more."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest

from daft_sparsevideo import VideoDecoder, _core, ddra
from daft_sparsevideo.ddra import ddra_frame_types
from daft_sparsevideo.errors import ShardWriteError
from ddra_shards import (
    HEIGHT,
    TICKS,
    WIDTH,
    Episode,
    Graph,
    Planes,
    _encoder,
    evenly,
    open_writer,
    planes,
    planes_of,
    write_shard,
)
from oracle import assert_same_picture, decode_all, rgb_of

CODECS = ["h264", "hevc"]
STRUCTURES: list[dict[str, Any]] = [{}, {"closed": True}, {"closure": 4}]


def nearest(types: str, frame: int, step: int, wanted: str) -> int:
    """The nearest frame on one side whose type is one of those wanted."""
    while types[frame + step] not in wanted:
        frame += step
    return frame + step


def expected_references(types: str, frame: int) -> set[int]:
    """What a frame of a type is to refer to, by the definition of the letters."""
    match types[frame]:
        case "P":
            return {nearest(types, frame, -1, "Ii")}
        case "B":
            return {nearest(types, frame, step, "IiP") for step in (-1, 1)}
        case "b":
            return {nearest(types, frame, step, "IiPB") for step in (-1, 1)}
    return set()


def assert_structure(path: Path, episodes: list[Episode], closure: int) -> None:
    graph = Graph.of(path)
    assert graph.pts == [pts for episode in episodes for pts in episode.pts]
    assert all(np.diff(graph.dts) > 0)
    start = 0
    for episode in episodes:
        for frame in range(len(episode.types)):
            references = {reference - start for reference in graph.references[start + frame]}
            expected = expected_references(episode.types, frame)
            if closure == 4 and episode.types[frame] == "b":  # x265 lists the anchor behind the B picture, too
                expected |= references & expected_references(episode.types.replace("B", "b"), frame)
            assert references == expected, (episode.types, frame)
            assert len(graph.closure(start + frame)) <= closure
        start += len(episode.types)


def psnr_db(one: Planes, other: Planes, bit_depth: int) -> float:
    """Of the luma."""
    error = np.mean((one[0].astype(np.float64) - other[0]) ** 2)
    return float(10 * np.log10((2**bit_depth - 1) ** 2 / max(error, 1e-9)))


def assert_plain_decoders_play_it(path: Path, episodes: list[Episode], bit_depth: int = 8) -> None:
    with av.open(str(path)) as file:
        frames = list(file.decode(video=0))
    assert [frame.pts for frame in frames] == [pts for episode in episodes for pts in episode.pts]
    originals: Iterator[Planes] = (frame for episode in episodes for frame in episode.frames(bit_depth))
    assert min(psnr_db(planes_of(frame), next(originals), bit_depth) for frame in frames) > 30


@pytest.mark.parametrize("structure", STRUCTURES, ids=["open", "closed", "closure4"])
@pytest.mark.parametrize("interval", [4, 8, 16, 32])
@pytest.mark.parametrize("codec", CODECS)
def test_every_length_of_episode_has_exactly_the_references_asked_for(
    tmp_path: Path, codec: str, interval: int, structure: dict[str, Any]
) -> None:
    lengths = [*range(1, 101)] if structure == {} else [*range(1, 2 * interval + 3)]
    episodes = evenly(ddra_frame_types(length, interval, **structure) for length in lengths)
    closure = structure.get("closure", 3)
    path = write_shard(tmp_path / "shard.mp4", codec, episodes, reference_b=closure == 4)
    assert_structure(path, episodes, closure)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("structure", STRUCTURES, ids=["open", "closed", "closure4"])
def test_plain_decoders_play_it_and_sparse_frames_are_theirs(
    tmp_path: Path, codec: str, structure: dict[str, Any]
) -> None:
    episodes = evenly(ddra_frame_types(length, 8, **structure) for length in (21, 1, 2, 30))
    closure = structure.get("closure", 3)
    path = write_shard(tmp_path / "shard.mp4", codec, episodes, reference_b=closure == 4, preset="medium")
    assert_plain_decoders_play_it(path, episodes)
    decoder = VideoDecoder(path)
    for frame in range(len(decoder)):
        assert decoder.plan_at([frame]).reconstructed <= closure
        assert_same_picture(decoder.get_frames_at([frame]).data[0], decode_all(path), frame)


@pytest.mark.parametrize("codec", CODECS)
def test_the_interval_may_change_within_an_episode_and_among_episodes(tmp_path: Path, codec: str) -> None:
    mixed = "I" + "b" * 31 + "i" + "bbb" + "i" + "i" + "b" * 15 + "i" + "b" + "P"
    episodes = evenly([mixed, ddra_frame_types(50, 4), ddra_frame_types(50, 32, cuts=[7, 9]), ddra_frame_types(9, 1)])
    path = write_shard(tmp_path / "shard.mp4", codec, episodes)
    assert_structure(path, episodes, 3)
    assert_plain_decoders_play_it(path, episodes)


@pytest.mark.parametrize("codec", CODECS)
def test_the_longest_interval_is_64(tmp_path: Path, codec: str) -> None:
    episodes = evenly([ddra_frame_types(140, 64)])
    assert_structure(write_shard(tmp_path / "shard.mp4", codec, episodes), episodes, 3)


@pytest.mark.parametrize("codec", CODECS)
def test_ten_bits_stay_ten_bits(tmp_path: Path, codec: str) -> None:
    episodes = evenly([ddra_frame_types(40, 16), ddra_frame_types(3, 16)])
    path = write_shard(tmp_path / "shard.mp4", codec, episodes, bit_depth=10)
    assert VideoDecoder(path).metadata.pix_fmt == "yuv420p10le"
    assert_structure(path, episodes, 3)
    assert_plain_decoders_play_it(path, episodes, bit_depth=10)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("time_base", "start", "gap"),
    [((1, 15360), 0, 0), ((1, 90000), 3003, 70), ((1, 1000), 17, 1), ((1001, 30000), 2, 3), ((1, 1_000_000), 1, 9)],
)
def test_uneven_times_come_back_to_the_tick(
    tmp_path: Path, codec: str, time_base: tuple[int, int], start: int, gap: int
) -> None:
    steps = np.random.default_rng(3).integers(1, 40, 60)
    episodes, at = [], start
    for length in (1, 2, 37, 20):
        pts = at + np.cumsum(steps[:length]) - int(steps[0])
        episodes.append(Episode(ddra_frame_types(length, 8), pts.tolist()))
        at = int(pts[-1]) + 40 + gap
    path = write_shard(tmp_path / "shard.mp4", codec, episodes, time_base=time_base)
    in_ticks = [Episode(e.types, [pts * time_base[0] for pts in e.pts]) for e in episodes]
    assert _core.Shard(str(path)).index.time_base == (1, time_base[1])
    assert_structure(path, in_ticks, 3)
    assert_plain_decoders_play_it(path, in_ticks)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("reference_b", [False, True])
def test_the_shard_ends_where_its_last_frame_does(tmp_path: Path, codec: str, *, reference_b: bool) -> None:
    writer = open_writer(tmp_path / "shard.mp4", codec, reference_b=reference_b)
    types = ddra_frame_types(10, 4, closure=4 if reference_b else 3)
    writer.encode_episode(map(planes, range(10)), np.arange(10) * TICKS, types, end_pts=9 * TICKS + 700)
    writer.close()
    with av.open(str(tmp_path / "shard.mp4")) as file:
        video = file.streams.video[0]
        assert (video.start_time, video.frames) == (0, 10)
        assert video.duration == 9 * TICKS + 700


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("bit_depth", [8, 10])
def test_colour_and_shape_are_tagged_in_the_stream_and_in_the_file(tmp_path: Path, codec: str, bit_depth: int) -> None:
    tags = {"color_primaries": 9, "color_trc": 16, "color_space": 9, "color_range": 2}
    episodes = evenly([ddra_frame_types(5, 4)])
    path = write_shard(
        tmp_path / "shard.mp4",
        codec,
        episodes,
        bit_depth=bit_depth,
        chroma_location=3,
        sample_aspect_ratio=(4, 3),
        **tags,
    )
    with av.open(str(path)) as file:
        context = file.streams.video[0].codec_context
        written = (context.color_primaries, context.color_trc, context.colorspace, context.color_range)
        assert [*map(int, written)] == [*tags.values()]
        assert file.streams.video[0].sample_aspect_ratio == Fraction(4, 3)
        for frame in file.decode(video=0):
            assert (frame.colorspace, frame.color_range) == (9, 2)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("rotation", [90, 180, 270])
def test_players_are_told_how_to_turn_the_pictures(tmp_path: Path, codec: str, rotation: int) -> None:
    path = write_shard(tmp_path / "shard.mp4", codec, evenly([ddra_frame_types(5, 4)]), rotation=rotation)
    assert VideoDecoder(path).metadata.rotation == rotation
    with av.open(str(path)) as file:
        assert (-next(file.decode(video=0)).rotation) % 360 == rotation


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("closure", [3, 4])
def test_fragments_hold_the_same_frames_at_the_same_times(tmp_path: Path, codec: str, closure: Any) -> None:
    episodes = evenly(ddra_frame_types(length, 8, closure=closure) for length in (21, 1, 30))
    settings = {"reference_b": closure == 4, "qp": 20}
    plain = write_shard(tmp_path / "plain.mp4", codec, episodes, **settings)
    path = write_shard(tmp_path / "fragmented.mp4", codec, episodes, fragmented=True, **settings)
    assert path.read_bytes().count(b"moof") == 3
    assert b"moof" not in plain.read_bytes()
    assert_structure(path, episodes, closure)
    assert_plain_decoders_play_it(path, episodes)
    assert [frame.digest for frame in decode_all(path).frames] == [frame.digest for frame in decode_all(plain).frames]


@pytest.mark.parametrize("codec", CODECS)
def test_a_trial_tells_bytes_and_quality_of_what_would_be_written(tmp_path: Path, codec: str) -> None:
    types = ddra_frame_types(21, 8)
    settings = _encoder.EncoderSettings(codec=codec, width=WIDTH, height=HEIGHT, preset="ultrafast", qp=25)
    size_bytes, squared_error = _encoder.trial_encode(settings, map(planes, range(21)), types)
    path = write_shard(tmp_path / "shard.mp4", codec, evenly([types]), qp=25)
    with av.open(str(path)) as file:
        written = {packet.pts // TICKS: packet.size for packet in file.demux(video=0) if packet.size}
    # A start code in Annex B may be a byte shorter than the length that takes its place.
    assert size_bytes.tolist() == pytest.approx([written[frame] for frame in range(21)], abs=1)
    with av.open(str(path)) as file:
        for number, frame in enumerate(file.decode(video=0)):
            for plane, original, told in zip(planes_of(frame), planes(number), squared_error[number], strict=True):
                assert told == pytest.approx(np.mean((plane.astype(np.float64) - original) ** 2))
    with pytest.raises(ValueError, match="2 frames for 3 types"):
        _encoder.trial_encode(settings, map(planes, range(2)), "IbP")
    with pytest.raises(ValueError, match="more frames than types"):
        _encoder.trial_encode(settings, map(planes, range(4)), "IbP")


@pytest.mark.parametrize("codec", CODECS)
def test_the_header_comes_first_and_episodes_bring_no_parameter_sets(tmp_path: Path, codec: str) -> None:
    path = write_shard(tmp_path / "shard.mp4", codec, evenly([ddra_frame_types(9, 4)] * 3))
    data = path.read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")
    with av.open(str(path)) as file:
        assert file.streams.video[0].codec_context.codec_tag == {"h264": "avc1", "hevc": "hvc1"}[codec]
    table = data.index(b"stss") + 8
    count, *samples = np.frombuffer(data[table : table + 16], ">u4").tolist()
    assert (count, samples) == (3, [1, 10, 19]), "frames that are shown before an open anchor follow it"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("structure", STRUCTURES, ids=["open", "closed", "closure4"])
def test_a_plain_seek_to_any_frame_finds_it(tmp_path: Path, codec: str, structure: dict[str, Any]) -> None:
    episodes = evenly([ddra_frame_types(27, 8, **structure)] * 2)
    path = write_shard(tmp_path / "shard.mp4", codec, episodes, reference_b="closure" in structure)
    oracle = decode_all(path)
    for wanted in range(54):
        with av.open(str(path)) as file:
            file.seek(wanted * TICKS, stream=file.streams.video[0])
            frame = next(frame for frame in file.decode(video=0) if frame.pts == wanted * TICKS)
            assert_same_picture(rgb_of(frame), oracle, wanted)


@pytest.mark.parametrize("codec", CODECS)
def test_the_same_input_gives_the_same_file(tmp_path: Path, codec: str) -> None:
    episodes = evenly([ddra_frame_types(40, 16)])  # by qp: stock x264's rate control reads memory that it never set
    one, other = (write_shard(tmp_path / f"{k}.mp4", codec, episodes, qp=25).read_bytes() for k in range(2))
    assert one == other


@pytest.mark.parametrize("codec", CODECS)
def test_several_threads_keep_the_structure(tmp_path: Path, codec: str) -> None:
    episodes = evenly(ddra_frame_types(length, 16) for length in (1, 70))
    path = write_shard(tmp_path / "shard.mp4", codec, episodes, num_threads=4)
    assert_structure(path, episodes, 3)
    assert_plain_decoders_play_it(path, episodes)


def test_a_constant_quantiser_and_planes_with_gaps_between_rows_are_taken(tmp_path: Path) -> None:
    def spaced(plane: npt.NDArray[Any]) -> npt.NDArray[Any]:
        wide = np.zeros((plane.shape[0], plane.shape[1] + 24), plane.dtype)
        wide[:, 8:-16] = plane
        return wide[:, 8:-16]

    for codec in CODECS:
        written = []
        for name, change in (("plain", np.asarray), ("spaced", spaced)):
            writer = open_writer(tmp_path / f"{name}.mp4", codec, qp=20)
            frames = [tuple(change(plane) for plane in planes(number)) for number in range(9)]
            writer.encode_episode(frames, np.arange(9), ddra_frame_types(9, 4))
            writer.close()
            written.append((tmp_path / f"{name}.mp4").read_bytes())
        assert written[0] == written[1]


def test_a_file_that_is_not_completed_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "shard.mp4"
    writer = open_writer(path, "h264")
    writer.encode_episode(map(planes, range(3)), np.arange(3), "IbP")
    assert path.exists()
    del writer
    assert not path.exists()


def test_an_episode_that_fails_leaves_the_others(tmp_path: Path) -> None:
    def breaks_off() -> Iterator[Planes]:
        yield planes(0)
        raise KeyError("no such frame")

    writer = open_writer(tmp_path / "shard.mp4", "hevc")
    writer.encode_episode(map(planes, range(3)), np.arange(3), "IbP")
    with pytest.raises(KeyError, match="no such frame"):
        writer.encode_episode(breaks_off(), np.arange(3, 6), "IbP")
    with pytest.raises(ValueError, match="2 frames for 3 pts"):
        writer.encode_episode(map(planes, range(2)), np.arange(3, 6), "IbP")
    with pytest.raises(ValueError, match="more frames than pts"):
        writer.encode_episode(map(planes, range(4)), np.arange(3, 6), "IbP")
    writer.encode_episode(map(planes, range(3)), np.arange(3, 6), "IbP")
    writer.close()
    assert _core.Shard(str(tmp_path / "shard.mp4")).index.frame_pts.tolist() == [*range(6)]


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    writer = open_writer(tmp_path / "no" / "shard.mp4", "h264")
    with pytest.raises(ShardWriteError, match=r"no/shard\.mp4: No such file or directory"):
        writer.encode_episode([planes(0)], np.arange(1), "I")


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "shard.mp4").symlink_to("/dev/full")
    with pytest.raises(ShardWriteError, match="No space left on device"):
        write_shard(tmp_path / "shard.mp4", "h264", evenly([ddra_frame_types(100, 4)] * 4), qp=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 63}, "63x48 is odd: .* crop or pad"),
        ({"height": 47}, "64x47 is odd"),
        ({"width": 0}, "no pixels"),
        ({"bit_depth": 12}, "must be 8 or 10"),
        ({"qp": 20, "crf": 20.0}, "one of crf and qp"),
        ({"crf": 60.0}, r"\[0, 51\]"),
        ({"preset": "fastest"}, "no preset fastest"),
        ({"codec": "av1"}, "must be 'hevc' or 'h264'"),
        ({"time_base": (1, 0)}, "time_base"),
        ({"num_threads": 0}, "num_threads"),
    ],
)
def test_settings_that_make_no_stream_are_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_writer(tmp_path / "shard.mp4", **({"codec": "hevc"} | settings))


@pytest.mark.parametrize(
    ("types", "pts", "message"),
    [
        ("", [], "at least one frame"),
        ("IbP", [0, 1], "3 types for 2 frames"),
        ("ibP", [0, 1, 2], "first frame's type must be I"),
        ("Ibb", [0, 1, 2], "last frame's type can't be"),
        ("IbI", [0, 1, 2], "frame 2 is an I after a B"),
        ("IBP", [0, 1, 2], "needs reference_b"),
        ("IxP", [0, 1, 2], "a type is 'x'"),
        ("IbP", [0, 2, 2], "pts must rise"),
        ("IbP", [-3, -2, -1], "starts at pts -3, before"),
    ],
)
def test_types_and_times_that_make_no_episode_are_refused(
    tmp_path: Path, types: str, pts: list[int], message: str
) -> None:
    writer = open_writer(tmp_path / "shard.mp4", "h264")
    with pytest.raises(ValueError, match=message):
        writer.encode_episode(map(planes, range(len(types))), np.array(pts, np.int64), types)
    with pytest.raises(ValueError, match="no episode was written"):
        writer.close()


@pytest.mark.parametrize(
    "change",
    [lambda plane: plane[:-2], lambda plane: plane.astype(np.uint16), lambda plane: plane.T.copy().T],
    ids=["size", "type", "order"],
)
def test_planes_of_another_form_are_refused(tmp_path: Path, change: Any) -> None:
    writer = open_writer(tmp_path / "shard.mp4", "h264")
    frame = tuple(change(plane) for plane in planes(0))
    with pytest.raises(ValueError, match=rf"plane 0 must be uint8\[{HEIGHT}, {WIDTH}\]"):
        writer.encode_episode([frame], np.arange(1), "I")
    with pytest.raises(TypeError, match="planes"):
        writer.encode_episode([planes(0)[:2]], np.arange(1), "I")


def test_without_the_module_the_package_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "daft_sparsevideo._encoder", None)
    with pytest.raises(ImportError, match="SPARSEVIDEO_ENCODER=OFF"):
        ddra.encoder_module()


@pytest.mark.parametrize(("frames", "interval"), [(0, 4), (4, 0)])
def test_no_structure_without_frames_or_interval(frames: int, interval: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ddra_frame_types(frames, interval)
