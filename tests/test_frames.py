# SPDX-License-Identifier: Apache-2.0
"""`VideoDecoder`, held against PyAV's sequential decode."""

from __future__ import annotations

import io
import os
import pickle
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from daft_sparsevideo import DecodeStats, VideoDecoder, errors
from encoding import encode
from oracle import decode_sequentially, rgb_of
from own_process import run_alone
from scenes import draw_scene
from small_clip import Clip, make_clip, make_clip_of_two_sizes, rotate


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Clip:
    return make_clip(tmp_path_factory.mktemp("frames") / "clip.mp4")


def test_frames_come_in_request_order_with_repeats_and_negative_numbers(clip: Clip) -> None:
    asked = [7, 3, -1, 7, 0, -60, 59, 30]
    batch = VideoDecoder(clip.path).get_frames_at(asked)
    assert batch.data.dtype == np.uint8
    for picture, number in zip(batch.data, asked, strict=True):
        np.testing.assert_array_equal(picture, clip.frames[number])
    np.testing.assert_allclose(batch.pts_s, [(number % 60) / 30 for number in asked])
    np.testing.assert_allclose(batch.duration_s, 1 / 30)
    assert (batch.stats.requested, batch.stats.unique) == (8, 5)


def test_answer_depends_on_the_request_alone(clip: Clip) -> None:
    decoder = VideoDecoder(clip.path)
    chance = np.random.default_rng(5)
    for count in (1, 2, 5, 60):
        for _ in range(3):
            asked = chance.integers(0, 60, count)
            batch = decoder.get_frames_at(asked)
            np.testing.assert_array_equal(batch.data, np.stack([clip.frames[i] for i in asked]))


def test_times_take_the_nearest_frame_or_the_one_on_screen(clip: Clip) -> None:
    asked = [0.0, 0.03, 1 / 30, 1.99, 2.01, -0.01]
    nearest = VideoDecoder(clip.path).get_frames_played_at(asked)
    played = VideoDecoder(clip.path, match="played").get_frames_played_at(np.array(asked, np.float32))
    np.testing.assert_array_equal(np.rint(nearest.pts_s * 30), [0, 1, 1, 59, 59, 0])
    np.testing.assert_array_equal(np.rint(played.pts_s * 30), [0, 0, 1, 59, 59, 0])
    np.testing.assert_array_equal(nearest.data[3], clip.frames[59])


def test_time_farther_away_than_the_tolerance_is_an_error(clip: Clip) -> None:
    with pytest.raises(
        errors.FrameOutOfRangeError, match=r"clip\.mp4: 2\.5.* outside \[0\.000000, 2\.000000\)"
    ) as caught:
        VideoDecoder(clip.path).get_frames_played_at([0.0, 2.5])
    assert (caught.value.shard, caught.value.time_s) == (clip.name, 2.5)
    with pytest.raises(errors.FrameOutOfRangeError, match=r"more than tolerance_s=0\.001"):
        VideoDecoder(clip.path, tolerance_s=0.001).get_frames_played_at([0.01])
    with pytest.raises(errors.FrameOutOfRangeError, match="not a time"):
        VideoDecoder(clip.path).get_frames_played_at([float("nan")])


def test_path_bytes_and_file_objects_give_the_same(clip: Clip) -> None:
    data = clip.path.read_bytes()
    with clip.path.open("rb") as file:
        for source in (clip.name, clip.path, data, memoryview(data), io.BytesIO(data), file):
            batch = VideoDecoder(source).get_frames_at([59, 20])  # type: ignore[arg-type]
            np.testing.assert_array_equal(batch.data, np.stack([clip.frames[59], clip.frames[20]]))


class FailingFile(io.BytesIO):
    """A file whose reads fail once `error` is set."""

    error: BaseException | None = None

    def read(self, size: int | None = -1) -> bytes:
        if self.error is not None:
            raise self.error
        return super().read(size)


def test_reads_that_fail_in_the_middle_are_told_as_such(clip: Clip) -> None:
    file = FailingFile(clip.path.read_bytes())
    decoder = VideoDecoder(file)
    file.error = TimeoutError("the line is dead")
    with pytest.raises(errors.ShardReadError, match="the line is dead"):
        decoder.get_frames_at([3])
    file.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        decoder.get_frames_at([3])
    file.error = None
    np.testing.assert_array_equal(decoder.get_frames_at([3]).data[0], clip.frames[3])


def test_file_that_shrinks_under_a_decoder_is_a_read_error(clip: Clip, tmp_path: Path) -> None:
    path = tmp_path / "shrinks.mp4"
    path.write_bytes(clip.path.read_bytes())
    decoder = VideoDecoder(path)
    with path.open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(errors.ShardReadError, match="shorter than when it was indexed"):
        decoder.get_frames_at([50])


def interrupt_decoding(path: str) -> tuple[bool, float]:
    decoder = VideoDecoder(path, num_threads=1)
    begin = time.monotonic()
    decoder.get_frames_at(range(len(decoder)))
    whole_s = time.monotonic() - begin
    timer = threading.Timer(whole_s / 10, os.kill, (os.getpid(), signal.SIGINT))
    begin = time.monotonic()
    timer.start()
    try:
        decoder.get_frames_at(range(len(decoder)))
    except KeyboardInterrupt:
        return True, (time.monotonic() - begin) / whole_s
    return False, 1.0


def test_interrupt_ends_a_call_before_it_is_done(tmp_path: Path) -> None:
    pictures = (np.full((360, 640, 3), number % 250, np.uint8) for number in range(600))
    path = encode(tmp_path / "long.mp4", pictures, params="keyint=60", options={"preset": "ultrafast"})
    interrupted, share_of_whole_call = run_alone(interrupt_decoding, str(path))
    assert interrupted
    assert share_of_whole_call < 0.8


def test_metadata_and_repr_tell_the_video(clip: Clip) -> None:
    decoder = VideoDecoder(clip.path)
    assert len(decoder) == 60
    metadata = decoder.metadata
    assert (metadata.codec, metadata.width, metadata.height, metadata.pix_fmt) == ("h264", 96, 64, "yuv420p")
    assert (metadata.num_frames, metadata.begin_s, metadata.end_s, metadata.rotation) == (60, 0.0, 2.0, 0)
    assert metadata.average_fps == 30
    assert repr(decoder) == "VideoDecoder('clip.mp4', h264, 60 frames of 96x64, 30 fps)"
    shown = repr(decoder.get_frames_at([0, 1]))
    assert shown.startswith("FrameBatch(data=uint8[2, 64, 96, 3], pts_s=float64[2], duration_s=float64[2], stats=Deco")


def test_no_frames_are_an_empty_batch(clip: Clip) -> None:
    decoder = VideoDecoder(clip.path)
    for batch in (decoder.get_frames_at([]), decoder.get_frames_played_at([])):
        assert batch.data.shape == (0, 64, 96, 3)
        assert batch.pts_s.shape == batch.duration_s.shape == (0,)
        assert batch.stats.reconstructed == 0
    assert decoder.plan_at([]) == DecodeStats()


def test_plan_tells_what_decoding_takes(clip: Clip) -> None:
    decoder = VideoDecoder(clip.path)
    asked = [40, 41, 41, 3]
    planned, taken = decoder.plan_at(asked), decoder.get_frames_at(asked).stats
    names = ("requested", "unique", "reconstructed", "state_only", "dropped", "segments", "fallbacks")
    assert [getattr(planned, name) for name in names] == [getattr(taken, name) for name in names]
    assert planned.decode_amplification == planned.reconstructed / 3


@pytest.mark.parametrize("number", [60, -61, 1 << 40])
def test_frame_number_outside_the_video_is_an_error(clip: Clip, number: int) -> None:
    with pytest.raises(IndexError, match=rf"frame {number} is outside \[0, 60\).*clip\.mp4") as caught:
        VideoDecoder(clip.path).get_frames_at([0, number])
    assert isinstance(caught.value, errors.FrameOutOfRangeError)


def test_arguments_of_the_wrong_kind_are_refused(clip: Clip) -> None:
    decoder = VideoDecoder(clip.path)
    with pytest.raises(TypeError, match="whole numbers"):
        decoder.get_frames_at([0.5])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="whole numbers"):
        decoder.get_frames_at([True])
    with pytest.raises(TypeError, match="list of numbers"):
        decoder.get_frames_played_at(["1.0"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="list of whole numbers"):
        decoder.get_frames_at(np.zeros((2, 2), np.int64))
    with pytest.raises(TypeError, match="source must be"):
        VideoDecoder(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_threads is 0"):
        VideoDecoder(clip.path, num_threads=0)
    with pytest.raises(ValueError, match="match is 'last'"):
        VideoDecoder(clip.path, match="last")  # type: ignore[arg-type]


def test_missing_and_foreign_files_are_told_apart(tmp_path: Path) -> None:
    missing = tmp_path / "missing.mp4"
    with pytest.raises(FileNotFoundError, match=r"missing\.mp4") as caught:
        VideoDecoder(missing)
    assert isinstance(caught.value, errors.ShardNotFoundError)
    text = tmp_path / "text.mp4"
    text.write_text("no video at all " * 100)
    empty = tmp_path / "empty.mp4"
    empty.touch()
    for path in (text, empty):
        with pytest.raises(errors.ShardFormatError, match=path.name):
            VideoDecoder(path)
    with pytest.raises(errors.ShardReadError, match="not a regular file"):
        VideoDecoder(tmp_path)
    with pytest.raises(errors.ShardFormatError):
        VideoDecoder(b"")


def test_errors_survive_pickling() -> None:
    for kind in (
        errors.ShardNotFoundError,
        errors.ShardReadError,
        errors.FrameOutOfRangeError,
        errors.FrameDecodeError,
    ):
        copy = pickle.loads(pickle.dumps(kind("what happened", shard="top.mp4", time_s=1.5)))  # noqa: S301
        assert (type(copy), str(copy), copy.shard, copy.time_s) == (kind, "what happened", "top.mp4", 1.5)


def test_frames_of_two_sizes_are_refused_in_one_batch_only(tmp_path: Path) -> None:
    path = tmp_path / "two.h264"
    frames = make_clip_of_two_sizes(path)
    decoder = VideoDecoder(path)
    with pytest.raises(errors.ShardFormatError, match=r"frame 2 \(96x64\) and frame 9 \(64x48\).*two\.h264 differ"):
        decoder.get_frames_at([2, 9])
    np.testing.assert_array_equal(decoder.get_frames_at([9, 8]).data, np.stack([frames[9], frames[8]]))
    np.testing.assert_array_equal(decoder.get_frames_at([2]).data[0], frames[2])


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_rotation_is_applied_on_demand(clip: Clip, tmp_path: Path, degrees: int) -> None:
    path = rotate(clip, tmp_path / "turned.mp4", degrees)
    as_coded, turned = VideoDecoder(path), VideoDecoder(path, apply_rotation=True)
    assert as_coded.metadata.rotation == degrees
    np.testing.assert_array_equal(as_coded.get_frames_at([5]).data[0], clip.frames[5])
    np.testing.assert_array_equal(turned.get_frames_at([5]).data[0], np.rot90(clip.frames[5], -degrees // 90))


def test_closed_decoder_opens_again_by_itself(clip: Clip) -> None:
    with VideoDecoder(clip.path) as decoder:
        decoder.get_frames_at([0])
    np.testing.assert_array_equal(decoder.get_frames_at([33]).data[0], clip.frames[33])


def test_threads_share_a_decoder(clip: Clip) -> None:
    decoder = VideoDecoder(clip.path)
    wrong: list[int] = []

    def work(seed: int) -> None:
        numbers = np.random.default_rng(seed).integers(0, 60, 10)
        pictures = [decoder.get_frames_at([number]).data[0] for number in numbers]
        wrong.extend(i for i, got in zip(numbers, pictures, strict=True) if not np.array_equal(got, clip.frames[i]))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12 on fork beside threads
def test_forked_processes_decode_from_the_same_decoder(clip: Clip) -> None:
    decoder = VideoDecoder(clip.path)
    decoder.get_frames_at([0, 59])
    children = []
    for seed in range(4):
        child = os.fork()
        if child == 0:
            asked = np.random.default_rng(seed).integers(0, 60, 16)
            same = np.array_equal(decoder.get_frames_at(asked).data, np.stack([clip.frames[i] for i in asked]))
            other = VideoDecoder(clip.path).get_frames_at([seed]).data[0]
            os._exit(0 if same and np.array_equal(other, clip.frames[seed]) else 1)
        children.append(child)
    np.testing.assert_array_equal(decoder.get_frames_at([30]).data[0], clip.frames[30])
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4


def test_matroska_that_does_not_begin_at_zero_keeps_its_times(tmp_path: Path) -> None:
    path = tmp_path / "late.mkv"
    encode(path, draw_scene("mixed", 12, 96, 64), pts=[300 + i for i in range(12)])
    frames = [rgb_of(frame) for frame in decode_sequentially(path)]
    decoder = VideoDecoder(path)
    assert decoder.metadata.begin_s == pytest.approx(10, abs=1e-3)
    np.testing.assert_array_equal(decoder.get_frames_at([0]).data[0], frames[0])
    np.testing.assert_array_equal(decoder.get_frames_played_at([10 + 5 / 30]).data[0], frames[5])
    with pytest.raises(errors.FrameOutOfRangeError):
        decoder.get_frames_played_at([0.0])
