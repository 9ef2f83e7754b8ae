# SPDX-License-Identifier: Apache-2.0
"""What is decoded, opened and read: counted, not timed.

The union closure is computed here, from the index's direct references alone; the planner's word is not taken for it.
"""

from __future__ import annotations

import io
import random
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import daft
import numpy as np
import numpy.typing as npt
import pytest
from daft import col

from coded_facts import reference_packets
from daft_sparsevideo import VideoDecoder, _core, decode_frames
from daft_sparsevideo import batch as batch_of_rows
from encoding import encode
from oracle import assert_same_picture, decode_all
from own_process import run_alone
from requests_of_frames import random_request
from scenes import draw, draw_scene, number_of, numbered
from streams import STREAMS, Stream, stream_path

DISPOSABLE = 8  # the bit of picture_flags: nothing refers to it
DROP, STATE_ONLY, RECONSTRUCT = 0, 1, 2
BY_NAME = {stream.name: stream for stream in STREAMS}


def shard_of(name: str) -> _core.Shard:
    return _core.Shard(str(stream_path(BY_NAME[name])))


def references_of(index: _core.StreamIndex, picture: int) -> set[int]:
    start, stop = index.reference_offsets[picture : picture + 2]
    return set(index.references[start:stop].tolist())


def union_closure(index: _core.StreamIndex, frames: Iterable[int]) -> set[int]:
    """The pictures of `frames` and, transitively, everything they refer to."""
    waiting = [int(index.frame_picture[frame]) for frame in frames]
    closure: set[int] = set()
    while waiting:
        picture = waiting.pop()
        if picture not in closure:
            closure.add(picture)
            waiting += references_of(index, picture)
    return closure


def check_segment(index: _core.StreamIndex, segment: _core.PlanSegment, closure: set[int]) -> None:
    """Outside the closure, references are passed by their headers and the others are never sent."""
    assert len(segment.outcomes) == segment.stop - segment.start
    for picture, outcome in enumerate(segment.outcomes.tolist(), segment.start):
        disposable = bool(index.picture_flags[picture] & DISPOSABLE)
        leading = index.codec == "hevc" and index.picture_pts[picture] < index.picture_pts[segment.start]
        if outcome == RECONSTRUCT:
            assert picture in closure
        elif disposable:
            assert outcome == DROP, f"picture {picture} is no reference"
        else:  # what follows an HEVC start in time never refers to the pictures that lead it (H.265, 7.4.2.2)
            assert outcome in (STATE_ONLY, DROP) if leading else outcome == STATE_ONLY, f"picture {picture}"


def check_counts(shard: _core.Shard, decoder: VideoDecoder, request: list[int]) -> None:
    """Each picture of the closure is reconstructed, once, and nothing else is."""
    index = shard.index
    closure = union_closure(index, request)
    plan = shard.plan(np.array(request, np.int64))
    assert set(plan.closure.tolist()) == closure
    for segment in plan.segments:
        check_segment(index, segment, closure)
    outcomes = [segment.outcomes for segment in plan.segments]
    counts = np.bincount(np.concatenate(outcomes), minlength=3).tolist()
    reconstructed = sorted(int(p) for s in plan.segments for p in s.start + np.flatnonzero(s.outcomes == RECONSTRUCT))
    assert reconstructed == sorted(closure), "each once"
    stats = decoder.get_frames_at(request).stats
    assert (stats.requested, stats.unique) == (len(request), len(set(request)))
    assert [stats.dropped, stats.state_only, stats.reconstructed] == counts
    assert stats.segments == len(plan.segments)
    assert stats.fallbacks == 0


@pytest.mark.parametrize("camera", ["top", "right_wrist"])
def test_random_frames_of_an_episode_reconstruct_exactly_their_union_closure(
    robot_shard: Callable[[str, str], Path], camera: str
) -> None:
    path = robot_shard("h264_noisy", camera)
    shard, decoder = _core.Shard(str(path)), VideoDecoder(path)
    rng = random.Random(camera)
    for begin, length in ((0, 269), (512, 226)):  # episodes 0 and 2
        request = rng.sample(range(begin, begin + length), 16)
        check_counts(shard, decoder, request)
        assert len(union_closure(shard.index, request)) < length, "less than a decode of the episode"


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: str(stream.name))
def test_requests_reconstruct_exactly_their_union_closure(stream: Stream) -> None:
    path = stream_path(stream)
    shard, decoder = _core.Shard(str(path)), VideoDecoder(path)
    rng = random.Random(stream.name)
    for _ in range(4):
        check_counts(shard, decoder, random_request(rng, len(decoder)))


@pytest.mark.parametrize(
    "stream", [stream for stream in STREAMS if stream.codec == "libx264"], ids=lambda stream: str(stream.name)
)
def test_disposable_pictures_are_those_that_the_stream_marks_so(stream: Stream) -> None:
    path = stream_path(stream)
    index = _core.Shard(str(path)).index
    assert (~index.picture_flags & DISPOSABLE).astype(bool).tolist() == reference_packets(path)


# ---- graphs that are known beforehand


def test_frames_of_a_one_reference_stream_refer_to_the_one_before() -> None:
    index = shard_of("h264_bframes0").index
    assert [references_of(index, p) for p in range(60)] == [set(), *({p - 1} for p in range(1, 60))]


def test_intra_frames_refer_to_nothing() -> None:
    for name in ("h264_keyint1", "hevc_keyint1"):
        assert len(shard_of(name).index.references) == 0


def test_frames_between_anchors_refer_to_the_two_around_them() -> None:
    shard = shard_of("h264_anchors8")
    index = shard.index
    for frame in range(56):
        anchor = frame // 8 * 8
        around = {int(index.frame_picture[anchor]), int(index.frame_picture[anchor + 8])}
        if frame % 8:
            assert references_of(index, int(index.frame_picture[frame])) == around
            assert VideoDecoder(stream_path(BY_NAME["h264_anchors8"])).plan_at([frame]).reconstructed == 3
        else:
            assert references_of(index, int(index.frame_picture[frame])) == set()


def test_pictures_before_a_closed_gop_are_in_no_closure_after_it() -> None:
    for name in ("h264_keyint5", "hevc_keyint5_closed"):
        index = shard_of(name).index
        for frame in range(60):
            first = int(index.frame_picture[frame // 5 * 5])
            assert min(union_closure(index, [frame])) >= first


# ---- what is passed over


def test_far_targets_do_not_push_what_lies_between_through_the_decoder() -> None:
    for name in ("h264_keyint5", "hevc_keyint5_closed"):
        decoder = VideoDecoder(stream_path(BY_NAME[name]))
        stats = decoder.get_frames_at([2, 58]).stats
        assert stats.segments == 2
        assert stats.reconstructed + stats.state_only + stats.dropped <= 10, "no more than the two GOPs"


def test_far_targets_in_one_gop_reconstruct_their_chains_alone() -> None:
    """One GOP of 120 frames: between the targets only what they refer to is decoded."""
    decoder = VideoDecoder(stream_path(BY_NAME["h264_keyint250"]))
    shard = shard_of("h264_keyint250")
    stats = decoder.get_frames_at([1, 117]).stats
    assert stats.reconstructed == len(union_closure(shard.index, [1, 117]))
    assert stats.dropped > 20
    assert stats.reconstructed < 90


def test_references_outside_the_closure_are_passed_over_by_their_headers() -> None:
    """Middle B pictures of a strict pyramid serve their own neighbours only: later frames need their headers alone."""
    path = stream_path(BY_NAME["h264_bframes8_strict"])
    stats = VideoDecoder(path).get_frames_at([26]).stats
    assert stats.state_only >= 2
    assert stats.dropped >= 8
    assert_same_picture(VideoDecoder(path).get_frames_at([26]).data[0], decode_all(path), 26)


# ---- files


def test_shard_is_opened_once(tmp_path: Path) -> None:
    path = encode(tmp_path / "clip.mp4", (numbered(i) for i in range(60)), params="keyint=10:bframes=2")
    shard = _core.Shard(str(path))
    for k in range(0, 60, 7):
        out = np.empty(64 * 96 * 3, np.uint8)
        shard.decode(np.array([k]), out, np.array([0]))
        assert number_of(out.reshape(64, 96, 3)) == k
    assert shard.opens == 1
    decoder = VideoDecoder(path)
    path.unlink()  # whoever opened it again would fail
    assert [number_of(p) for p in decoder.get_frames_at([50, 3, 22]).data] == [50, 3, 22]


class CountingFile(io.BytesIO):
    """Counts what is really read of it."""

    bytes_read = 0
    largest_read = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.bytes_read += len(data)
        self.largest_read = max(self.largest_read, len(data))
        return data

    def readinto(self, buffer: object) -> int:
        count = super().readinto(buffer)  # type: ignore[arg-type]
        self.bytes_read += count
        self.largest_read = max(self.largest_read, count)
        return count


def test_one_frame_reads_its_own_gop_and_no_more(tmp_path: Path) -> None:
    path = encode(
        tmp_path / "long.mp4",
        draw_scene("mixed", 300, 192, 128),
        params="keyint=10:bframes=2:crf=8:scenecut=0:open-gop=0",
    )
    file = CountingFile(path.read_bytes())
    decoder = VideoDecoder(file)
    index = _core.Shard(str(path)).index
    for frame in (250, 7, 299):
        before = file.bytes_read
        batch = decoder.get_frames_at([frame])
        read = file.bytes_read - before
        closure = sorted(union_closure(index, [frame]))
        needed = int(index.picture_size[closure].sum())
        gop = int(index.picture_size[frame // 10 * 10 : frame // 10 * 10 + 10].sum())
        assert needed <= read <= gop + 4096, (needed, read, gop)
        assert needed <= batch.stats.bytes_read <= read
        assert read < len(file.getvalue()) / 15
    again = file.bytes_read
    decoder.plan_at([1, 100, 200])
    assert file.bytes_read == again, "a plan reads nothing"


# ---- memory


def most_resident_mib() -> int:
    """The peak of this very program; getrusage would begin with that of the process which started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def rows_through_to_arrow_iter(path: str, rows: int) -> dict[str, int]:
    """Decode `rows` frames of a 640x480 shard in a query that is read batch by batch; the most memory it ever took.

    Daft itself reads ahead of a slow consumer without a bound. So that the result does not hang on how the machine
    shares out its time, decoding waits here while the consumer is two batches behind.
    """
    caught_up = threading.Condition()
    decoded = consumed = 0
    real = batch_of_rows.Batch.decode

    def decode(batch: batch_of_rows.Batch, *arguments: Any) -> Any:
        nonlocal decoded
        with caught_up:
            caught_up.wait_for(lambda: decoded - consumed <= 2 * 128, timeout=5)
            decoded += len(batch)
        return real(batch, *arguments)

    frames = len(VideoDecoder(path))
    times = (np.arange(rows) % frames / 30).tolist()
    query = daft.from_pydict({"timestamp": times}).select(
        decode_frames(path, 0.0, col("timestamp"), height=480, width=640).alias("frame")
    )
    before = most_resident_mib()
    light = 0
    with mock.patch.object(batch_of_rows.Batch, "decode", decode):
        for batch in query.to_arrow_iter():
            pixels: npt.NDArray[np.uint8] = batch.column("frame").storage.values.to_numpy(zero_copy_only=True)
            light += int(pixels[:: 1 << 20].sum())
            with caught_up:
                consumed += batch.num_rows
                caught_up.notify_all()
    return {"rows": consumed, "light": light, "before_mib": before, "after_mib": most_resident_mib()}


def test_memory_is_bounded_by_the_batch_and_not_by_the_rows(tmp_path: Path) -> None:
    small = [draw("still", moment, 160, 120) for moment in range(0, 300, 5)]
    pictures = (small[i // 5].repeat(4, axis=0).repeat(4, axis=1) for i in range(300))
    path = encode(tmp_path / "film.mp4", pictures, params="keyint=60:bframes=3:crf=30", options={"preset": "ultrafast"})
    seen = run_alone(rows_through_to_arrow_iter, str(path), 20_000, timeout_s=300)
    assert seen["rows"] == 20_000
    assert seen["light"] > 0
    assert seen["after_mib"] - seen["before_mib"] < 600, seen  # the rows are 17 GiB
