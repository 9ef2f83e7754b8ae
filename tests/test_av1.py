# SPDX-License-Identifier: Apache-2.0
"""AV1: hidden frames, closures over all seven slots, and what cannot be proven.

The graph is compared with frame headers that PyAV's FFmpeg has read, and with the slots simulated here.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import av
import daft
import numpy as np
import pytest
from daft import col

import container_surgery as surgery
from av1_facts import ALL_SLOTS, KEY, Header, av1_facts, closure_of, frame_headers
from av1_streams import AV1_STREAMS, Av1Stream, av1_path
from av1_surgery import (
    Obu,
    change_obus,
    in_two_layers,
    read_units,
    with_operating_points,
    with_short_signaling,
    write_ivf,
)
from daft_sparsevideo import (
    VideoDecoder,
    _core,
    anchor_cache_use,
    decode_frames,
    decode_windows,
    explain_decode,
    set_anchor_cache,
    write_index,
)
from daft_sparsevideo.errors import FrameDecodeError, FrameOutOfRangeError
from oracle import Oracle, assert_same_picture, decode_all
from requests_of_frames import random_request
from streams import STREAMS, stream_path

SHOWS_EXISTING = 16  # the bit of picture_flags
STATE_ONLY = 1
FRAMES = (3, 6)  # kinds of OBUs with a frame header
BY_NAME = {stream.name: stream for stream in AV1_STREAMS}
WITH_GRAPH = [stream for stream in AV1_STREAMS if stream.graph]


def path_of(name: str) -> Path:
    return av1_path(BY_NAME[name])


def shown_headers(headers: list[Header]) -> list[int]:
    """The header that shows each frame."""
    return [number for number, header in enumerate(headers) if not header.is_hidden]


def assert_each_frame_alone(path: Path) -> None:
    oracle, decoder = decode_all(path), VideoDecoder(path)
    assert len(decoder) == len(oracle.frames)
    order = list(range(len(decoder)))
    random.Random(3).shuffle(order)
    for index in order:
        assert_same_picture(decoder.get_frames_at([index]).data[0], oracle, index)


def test_there_are_enough_streams_of_different_names() -> None:
    assert len({stream.name for stream in AV1_STREAMS}) == len(AV1_STREAMS) >= 70
    assert sum(stream.encoder == "svt" for stream in AV1_STREAMS) >= 40


@pytest.mark.parametrize("stream", AV1_STREAMS, ids=lambda stream: str(stream.name))
def test_stream_is_what_its_row_says(stream: Av1Stream) -> None:
    path = av1_path(stream)
    oracle, seen = decode_all(path), av1_facts(path)
    assert oracle.complaints == ()
    assert oracle.codec == "libdav1d"
    assert len(oracle.frames) == stream.frames == len(shown_headers(seen.headers))
    if "resized" not in stream.name:
        assert {(frame.width, frame.height) for frame in oracle.frames} == {stream.size}
    for name, wanted in stream.shows.items():
        value = getattr(seen, name.removeprefix("min_"))
        assert value >= wanted if name.startswith("min_") else value == wanted, (name, value)


# ---- the graph


@pytest.mark.parametrize("stream", AV1_STREAMS, ids=lambda stream: str(stream.name))
def test_references_are_what_the_slots_hold(stream: Av1Stream) -> None:
    path = av1_path(stream)
    headers, index = frame_headers(path), _core.Shard(str(path)).index
    assert index.num_pictures == len(headers)
    assert index.frame_picture.tolist() == shown_headers(headers)
    for number, header in enumerate(headers):
        start, stop = index.reference_offsets[number : number + 2]
        assert index.references[start:stop].tolist() == list(header.references), f"frame header {number}"
        assert bool(index.picture_flags[number] & SHOWS_EXISTING) == header.shows_existing


@pytest.mark.parametrize("stream", WITH_GRAPH, ids=lambda stream: str(stream.name))
def test_requests_reconstruct_exactly_their_closure_and_drop_the_rest(stream: Av1Stream) -> None:
    path = av1_path(stream)
    headers, shard, decoder = frame_headers(path), _core.Shard(str(path)), VideoDecoder(path)
    shown = shown_headers(headers)
    rng = random.Random(stream.name)
    for _ in range(4):
        request = random_request(rng, len(decoder))
        closure = set().union(*(closure_of(headers, shown[index]) for index in request))
        plan = shard.plan(np.array(request, np.int64))
        assert set(plan.closure.tolist()) == closure
        assert plan.stats.reconstructed == len(closure), "each once"
        for segment in plan.segments:
            outcomes = enumerate(segment.outcomes.tolist(), segment.start)
            assert all(headers[number].shows_existing for number, outcome in outcomes if outcome == STATE_ONLY)
        if "resized" not in stream.name:
            stats = decoder.get_frames_at(request).stats
            assert (stats.reconstructed, stats.fallbacks) == (len(closure), 0)


def test_a_frame_of_a_long_pyramid_takes_a_few_pictures() -> None:
    path = path_of("svt_g161")
    shard = _core.Shard(str(path))
    for frame in (100, 150, 160):
        stats = shard.plan(np.array([frame])).stats
        assert stats.reconstructed <= 15
        assert stats.dropped > 5 * stats.reconstructed


def test_a_hidden_frame_is_read_and_shown_without_the_others_of_its_unit() -> None:
    """Bytes: those of the closure and no more, since a header that shows a frame is in the index."""
    path = path_of("svt_levels5")
    headers, shard = frame_headers(path), _core.Shard(str(path))
    index = shard.index
    shown = shown_headers(headers)
    hidden = [frame for frame, number in enumerate(shown) if headers[number].shows_existing]
    oracle, decoder = decode_all(path), VideoDecoder(path)
    for frame in hidden[:: len(hidden) // 8]:
        batch = decoder.get_frames_at([frame])
        assert_same_picture(batch.data[0], oracle, frame)
        closure = sorted(closure_of(headers, shown[frame]))
        needed = int(index.picture_size[closure].sum())
        assert needed <= batch.stats.bytes_read <= needed + 4096 * len(closure)
        assert batch.stats.state_only == 1
    unit = [number for number, header in enumerate(headers) if header.packet == headers[shown[1]].packet]
    assert len(unit) == 6
    positions = index.picture_position[unit].tolist()
    assert np.diff(positions).tolist() == index.picture_size[unit].tolist()[:-1], "byte ranges inside one packet"


def test_a_key_frame_that_is_shown_later_resets_all_slots() -> None:
    path = path_of("aom_forward_key")
    headers = frame_headers(path)
    resets = [n for n, h in enumerate(headers) if h.shows_existing and h.values["frame_type"] == 0]
    assert resets
    later = next(n for n, h in enumerate(headers) if n > resets[0] and h.references and not h.shows_existing)
    assert set(headers[later].references) == {resets[0]}
    assert headers[resets[0]].values.get("refresh_frame_flags", ALL_SLOTS) == ALL_SLOTS
    assert_each_frame_alone(path)


@pytest.mark.parametrize("name", ["svt_open_gop", "svt_open_gop_levels5", "aom_forward_key", "svt_g161"])
def test_answer_depends_on_the_request_alone(name: str) -> None:
    path = path_of(name)
    oracle, decoder = decode_all(path), VideoDecoder(path)
    count = len(decoder)
    requests = [[count - 2], [1], [count - 1, 0], [count // 2], [3], [count - 5], [0]]
    requests += [np.random.default_rng(seed).permutation(count)[:9].tolist() for seed in range(6)]
    for request in requests:
        fresh = VideoDecoder(path.read_bytes()).get_frames_at(request).data
        reused = decoder.get_frames_at(request).data
        np.testing.assert_array_equal(reused, fresh)
        for picture, index in zip(reused, request, strict=True):
            assert_same_picture(picture, oracle, index)


# ---- what cannot be proven


def test_spatial_layers_are_shown_as_a_full_decode_shows_them(tmp_path: Path) -> None:
    units = in_two_layers(read_units(path_of("svt_low_delay")))
    path = write_ivf(tmp_path / "layers.ivf", units, (96, 64))
    assert len(decode_all(path).frames) == len(units), "the lower layer is not shown"
    assert "layers" in _core.Shard(str(path)).index.fallback_reason
    assert_each_frame_alone(path)


def test_operating_points_are_no_matter_of_guessing(tmp_path: Path) -> None:
    units = change_obus(read_units(path_of("svt_preset8")), lambda obu: with_operating_points(obu, (0, 0)))
    path = write_ivf(tmp_path / "points.ivf", units, (144, 96))
    assert "operating points" in _core.Shard(str(path)).index.fallback_reason
    assert_each_frame_alone(path)


def test_references_that_depend_on_all_slots_are_decoded_with_all_frames(tmp_path: Path) -> None:
    size = BY_NAME["svt_preset8"].size
    units = read_units(path_of("svt_preset8"))
    original = decode_all(write_ivf(tmp_path / "original.ivf", units, size))
    changed = 0
    for number, unit in enumerate(units):  # the rule does not give the references of every frame
        tried = [*units[:number], [with_short_signaling(obu) for obu in unit], *units[number + 1 :]]
        path = write_ivf(tmp_path / f"{number}.ivf", tried, size)
        if tried[number] != unit and decode_all(path).frames == original.frames:
            units, changed = tried, changed + 1
    assert changed > 8
    path = write_ivf(tmp_path / "short.ivf", units, size)
    index = _core.Shard(str(path)).index
    assert "depend on more" in index.fallback_reason
    assert_each_frame_alone(path)


# ---- damage


def pyramid(tmp_path: Path) -> tuple[Path, list[Header], Oracle]:
    """A stream with a key frame every 16 frames and hidden ones, in a container that anybody can write."""
    path = tmp_path / "whole.ivf"
    write_ivf(path, read_units(path_of("svt_g16")), BY_NAME["svt_g16"].size)
    return path, frame_headers(path), decode_all(path)


def check(path: Path, original: Oracle, harmed: set[int], doubtful: set[int]) -> None:
    """Frames in `harmed` are errors, those in `doubtful` errors or exact, and all others exact."""
    decoder = VideoDecoder(path, tolerance_s=0.002)
    count = len(original.frames)
    column = decode_frames(str(path), 0.0, col("t"), on_error="null", tolerance_s=0.002).alias("picture")
    rows = daft.from_pydict({"t": [original.seconds_at(index) for index in range(count)]}).select(column).to_pydict()
    order = list(range(count))
    random.Random(1).shuffle(order)
    for index in order:
        picture = rows["picture"][index]
        with contextlib.suppress(FrameDecodeError, FrameOutOfRangeError):
            alone = decoder.get_frames_played_at([original.seconds_at(index)]).data[0]
            assert_same_picture(alone, original, index, "alone")
            assert index not in harmed
        if picture is not None:
            assert_same_picture(picture, original, index, "in a batch")
            assert index not in harmed
        else:
            assert index in harmed | doubtful, f"frame {index} needs nothing that is damaged"


@pytest.mark.parametrize("kind", ["hidden", "key"])
def test_frames_whose_slots_lost_a_frame_look_as_they_do_to_pyav(tmp_path: Path, kind: str) -> None:
    """They find an older frame there, which no decoder can notice; whatever does not need it is as it was."""
    whole, headers, original = pyramid(tmp_path)
    victim = next(
        n
        for n, header in enumerate(headers)
        if n > len(headers) // 3 and (header.is_hidden if kind == "hidden" else header.kind == KEY)
    )
    place = sum(header.packet == headers[victim].packet for header in headers[:victim])
    units = read_units(whole)
    unit = units[headers[victim].packet]
    lost = [obu for obu in unit if obu.kind in FRAMES][place]
    units[headers[victim].packet] = [obu for obu in unit if obu is not lost]
    path = write_ivf(tmp_path / "gap.ivf", units, BY_NAME["svt_g16"].size)
    seen = {frame.pts: index for index, frame in enumerate(decode_all(path).frames)}
    touched = {frame for frame, number in enumerate(shown_headers(headers)) if victim in closure_of(headers, number)}
    assert 3 < len(touched) < 20
    decoder = VideoDecoder(path, tolerance_s=0.002)
    for frame, shown in enumerate(original.frames):
        try:
            picture = decoder.get_frames_played_at([original.seconds_at(frame)]).data[0]
        except (FrameDecodeError, FrameOutOfRangeError):
            assert frame in touched
            continue
        if frame in touched:
            assert_same_picture(picture, decode_all(path), seen[shown.pts])
        else:
            assert_same_picture(picture, original, frame)


def test_a_frame_without_its_tiles_harms_what_needs_it_and_no_other_group(tmp_path: Path) -> None:
    whole, headers, original = pyramid(tmp_path)
    victim = next(n for n, h in enumerate(headers) if n > len(headers) // 3 and h.is_hidden)
    units = read_units(whole)
    unit = units[headers[victim].packet]
    place = next(k for k, obu in enumerate(unit) if obu.kind in FRAMES)
    assert headers[victim - 1].packet < headers[victim].packet, "it is the first frame of its packet"
    unit[place] = Obu(unit[place].kind, unit[place].fields)
    path = write_ivf(tmp_path / "hole.ivf", units, BY_NAME["svt_g16"].size)
    shown = shown_headers(headers)
    harmed = {frame for frame, number in enumerate(shown) if victim in closure_of(headers, number)}
    assert 3 < len(harmed) < 20
    keys = [frame for frame, number in enumerate(shown) if headers[number].kind == KEY]
    begin = max(key for key in keys if key <= min(harmed))
    end = min(key for key in keys if key > begin)
    check(path, original, harmed, set(range(begin + 1, end)))


def test_a_file_cut_at_sixty_percent_gives_what_is_left(tmp_path: Path) -> None:
    whole, _, original = pyramid(tmp_path)
    data = whole.read_bytes()
    path = tmp_path / "cut.ivf"
    path.write_bytes(data[: len(data) * 6 // 10])
    decoder = VideoDecoder(path, tolerance_s=0.002)
    seen = decode_all(path)
    assert 20 < len(seen.frames) < 50
    exact = 0
    for index in range(len(original.frames)):
        try:
            picture = decoder.get_frames_played_at([original.seconds_at(index)]).data[0]
        except (FrameDecodeError, FrameOutOfRangeError):
            continue
        assert_same_picture(picture, original, index)
        exact += 1
    assert exact >= len(seen.frames) - 1


# ---- the rest of the package


def test_anchors_are_not_kept_and_nothing_changes_for_it() -> None:
    path = path_of("svt_g161")
    oracle = decode_all(path)
    set_anchor_cache(1 << 28)
    try:
        decoder = VideoDecoder(path)
        for request in ([100], [101], [3, 150, 101], [100]):
            for picture, index in zip(decoder.get_frames_at(request).data, request, strict=True):
                assert_same_picture(picture, oracle, index)
        assert anchor_cache_use().nbytes == 0
    finally:
        set_anchor_cache(0)


@pytest.mark.parametrize("name", ["svt_levels4", "svt_open_gop", "svt_mkv_late_start", "aom_forward_key", "layers"])
def test_an_index_file_tells_what_a_pass_does(tmp_path: Path, name: str) -> None:
    if name == "layers":
        path = write_ivf(tmp_path / "layers.ivf", in_two_layers(read_units(path_of("svt_low_delay"))), (96, 64))
    else:
        path = path_of(name)
    file = write_index(path, tmp_path / "index.parquet")
    plain, indexed, oracle = VideoDecoder(path), VideoDecoder(path, index=file), decode_all(path)
    rng = random.Random(name)
    for _ in range(10):
        request = random_request(rng, len(oracle.frames))
        assert indexed.plan_at(request) == plain.plan_at(request)
        batch = indexed.get_frames_at(request)
        for picture, index in zip(batch.data, request, strict=True):
            assert_same_picture(picture, oracle, index)
        assert batch.stats == plain.get_frames_at(request).stats
        assert batch.stats.fallbacks == 0


def test_codecs_share_a_batch() -> None:
    others = {stream.name: stream for stream in STREAMS}
    paths = [path_of("svt_levels3"), stream_path(others["h264_medium"]), stream_path(others["hevc_bframes8"])]
    paths += [path_of("svt_grain"), path_of("svt_98x66")]
    rng = random.Random(5)
    rows = [(path, rng.randrange(40)) for path in paths for _ in range(6)]
    rng.shuffle(rows)
    table = daft.from_pydict({"shard": [str(path) for path, _ in rows], "t": [index / 30 for _, index in rows]})
    pictures = table.select(decode_frames(col("shard"), 0.0, col("t")).alias("picture")).to_pydict()["picture"]
    for (path, index), picture in zip(rows, pictures, strict=True):
        assert_same_picture(picture, decode_all(path), index)


def test_windows_and_explanations_are_those_of_other_codecs() -> None:
    path = path_of("svt_levels4")
    oracle, headers = decode_all(path), frame_headers(path)
    rows = daft.from_pydict({"t": [20 / 30, 0.0]})
    window = decode_windows(str(path), 0.0, col("t"), end=2.0, deltas_s=[-2 / 30, 0.0], height=64, width=96)
    told = rows.select(window.alias("window"), explain_decode(str(path), 0.0, col("t")).alias("told")).to_pydict()
    for pictures, frames in zip((row["frames"] for row in told["window"]), ((18, 20), (0, 0)), strict=True):
        for picture, index in zip(pictures, frames, strict=True):
            assert_same_picture(picture, oracle, index)
    shown = shown_headers(headers)
    assert [row["pictures"] for row in told["told"]] == [len(closure_of(headers, shown[frame])) for frame in (20, 0)]
    assert all(row["sparse"] and row["reason"] is None for row in told["told"])


def test_discarded_frames_of_an_edit_list_stay_references(tmp_path: Path) -> None:
    with av.open(str(path_of("svt_preset8"))) as file:
        ticks = (file.streams.video[0].duration or 0) // 60
    path = surgery.cut_to(path_of("svt_preset8"), tmp_path / "cut.mp4", 17 * ticks, 17 * 1000 // 30)
    assert len(VideoDecoder(path)) == len(decode_all(path).frames) == 43
    assert_each_frame_alone(path)


@pytest.mark.parametrize("name", ["top", "right_wrist"])
def test_frames_of_a_recording_as_lerobot_makes_them(robot_shard: Callable[[str, str], Path], name: str) -> None:
    path = robot_shard("av1_noisy", name)
    decoder, oracle = VideoDecoder(path), decode_all(path)
    rng = random.Random(name)
    for _ in range(6):
        request = rng.sample(range(len(decoder)), 16)
        batch = decoder.get_frames_at(request)
        for picture, index in zip(batch.data, request, strict=True):
            assert_same_picture(picture, oracle, index)
        assert batch.stats.reconstructed <= 32, "a key frame each, at most"
        assert batch.stats.fallbacks == 0
