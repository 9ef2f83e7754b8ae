# SPDX-License-Identifier: Apache-2.0
"""The bounded set of open shards of a process."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import daft
import numpy as np
import pytest

from daft_sparsevideo import VideoDecoder, _core, errors
from daft_sparsevideo.open_shards import OpenShard, OpenShards, ShardSource, open_shards
from small_clip import Clip, make_clip


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Clip:
    return make_clip(tmp_path_factory.mktemp("open") / "clip.mp4", frames=12)


@pytest.fixture
def opened_paths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of shards that were opened anew, as it happens."""
    seen: list[str] = []
    shard_class = _core.Shard

    def count(source: object, *, name: str = "") -> _core.Shard:
        seen.append(name)
        return shard_class(source, name=name)  # type: ignore[arg-type]

    monkeypatch.setattr(_core, "Shard", count)
    return seen


@pytest.fixture
def copies(clip: Clip, tmp_path: Path) -> list[Path]:
    return [Path(shutil.copy(clip.path, tmp_path / f"{i:02d}.mp4")) for i in range(10)]


def descriptors_of(folder: Path) -> int:
    """How many of this process's descriptors lie in a folder."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            count += descriptor.readlink().is_relative_to(folder)
        except FileNotFoundError:
            continue  # the one that lists them
    return count


def first_frame(shards: OpenShards, path: Path) -> np.ndarray:
    opened = shards.get(ShardSource.of_path(str(path)))
    height, width = int(opened.height[0]), int(opened.width[0])
    data = np.empty(height * width * 3, np.uint8)
    with shards.use(opened) as shard:
        assert shard.decode(np.zeros(1, np.int64), data, np.zeros(1, np.int64)).errors == []
    return data.reshape(height, width, 3)


def test_shard_is_opened_once_for_all_who_ask(clip: Clip, opened_paths: list[str]) -> None:
    shards = OpenShards()
    source = ShardSource.of_path(clip.name)
    assert shards.get(source) is shards.get(ShardSource.of_path("file://" + clip.name))
    assert shards.get(source) is shards.get(ShardSource.of_file(daft.File(clip.name)))
    assert opened_paths == [clip.name]


def test_threads_that_ask_at_once_open_it_once(clip: Clip, opened_paths: list[str]) -> None:
    shards = OpenShards()
    together = threading.Barrier(8)
    got: list[OpenShard] = []

    def ask() -> None:
        together.wait()
        got.append(shards.get(ShardSource.of_path(clip.name)))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened_paths == [clip.name]
    assert len({id(opened) for opened in got}) == 1


def test_descriptors_are_bounded_and_indexes_stay(copies: list[Path], clip: Clip, opened_paths: list[str]) -> None:
    shards = OpenShards(max_descriptors=3)
    for _ in range(2):
        for path in copies:
            np.testing.assert_array_equal(first_frame(shards, path), clip.frames[0])
            assert descriptors_of(path.parent) <= 3
    assert len(opened_paths) == len(copies)
    assert len(shards) == len(copies)
    shards.clear()
    assert descriptors_of(copies[0].parent) == 0


def test_descriptor_in_use_is_not_taken_away(copies: list[Path]) -> None:
    shards = OpenShards(max_descriptors=1)
    busy = shards.get(ShardSource.of_path(str(copies[0])))
    with shards.use(busy) as shard:
        for path in copies[1:]:
            first_frame(shards, path)
        assert shard.opens == 1
        assert descriptors_of(copies[0].parent) == 1
    assert descriptors_of(copies[0].parent) <= 1


def test_bytes_of_indexes_are_bounded(copies: list[Path], opened_paths: list[str]) -> None:
    size = OpenShards().get(ShardSource.of_path(str(copies[0]))).nbytes
    shards = OpenShards(max_index_bytes=3 * size)
    opened_paths.clear()
    for path in (*copies, copies[-1], copies[-2], copies[0]):
        first_frame(shards, path)
        assert len(shards) <= 3
    assert len(opened_paths) == len(copies) + 1, "only the long forgotten first one is opened again"
    assert descriptors_of(copies[0].parent) <= 3


def test_decoder_outlives_its_place_among_the_open_shards(copies: list[Path], clip: Clip) -> None:
    decoder = VideoDecoder(copies[0])
    open_shards.clear()
    np.testing.assert_array_equal(decoder.get_frames_at([11]).data[0], clip.frames[11])
    assert descriptors_of(copies[0].parent) == 0


def test_file_that_changed_is_another_shard(clip: Clip, tmp_path: Path, opened_paths: list[str]) -> None:
    path = tmp_path / "changing.mp4"
    shutil.copy(clip.path, path)
    shards = OpenShards()
    first = shards.get(ShardSource.of_path(str(path)))
    other = make_clip(tmp_path / "other.mp4", frames=7)
    shutil.copy(other.path, path)
    second = shards.get(ShardSource.of_path(str(path)))
    assert (first.shard.index.num_frames, second.shard.index.num_frames) == (12, 7)
    os.utime(path, ns=(1, 1))
    assert shards.get(ShardSource.of_path(str(path))) is not second
    assert len(shards) == 1
    assert len(opened_paths) == 3


def test_failed_opening_is_not_remembered(clip: Clip, tmp_path: Path) -> None:
    path = tmp_path / "late.mp4"
    shards = OpenShards()
    source = ShardSource.of_path(str(path))
    with pytest.raises(errors.ShardNotFoundError, match=r"late\.mp4"):
        shards.get(source)
    path.write_bytes(b"nonsense" * 100)
    with pytest.raises(errors.ShardFormatError):
        shards.get(source)
    shutil.copy(clip.path, path)
    np.testing.assert_array_equal(first_frame(shards, path), clip.frames[0])


def test_broken_files_leave_no_descriptor(copies: list[Path]) -> None:
    shards = OpenShards(max_descriptors=4)
    for path in copies[::2]:
        path.write_bytes(path.read_bytes()[:400])
    for _ in range(3):
        for path in copies:
            try:
                first_frame(shards, path)
            except errors.SparseVideoError:
                continue
    assert descriptors_of(copies[0].parent) <= 4


def test_byte_range_of_a_file_is_a_shard_of_its_own(clip: Clip, tmp_path: Path) -> None:
    video = clip.path.read_bytes()
    path = tmp_path / "archive.bin"
    path.write_bytes(b"x" * 100 + video + b"y" * 50)
    source = ShardSource.of_file(daft.File(str(path), position=100, size=len(video)))
    shards = OpenShards()
    opened = shards.get(source)
    assert opened.shard.index.num_frames == 12
    data = np.empty(clip.frames[0].nbytes, np.uint8)
    with shards.use(opened) as shard:
        shard.decode(np.array([9]), data, np.zeros(1, np.int64))
    np.testing.assert_array_equal(data.reshape(clip.frames[0].shape), clip.frames[9])
    with pytest.raises(errors.ShardNotFoundError, match=r"gone\.bin"):
        shards.get(ShardSource.of_file(daft.File(str(tmp_path / "gone.bin"), position=0, size=10)))


@pytest.fixture
def fork_while_busy(clip: Clip) -> Iterator[OpenShard]:
    """A shard of this process that another thread is using."""
    open_shards.clear()
    opened = open_shards.get(ShardSource.of_path(clip.name))
    started, done = threading.Event(), threading.Event()

    def hold() -> None:
        with open_shards.use(opened):
            started.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    started.wait()
    yield opened
    done.set()
    thread.join()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12 on fork beside threads
def test_forked_process_opens_anew_what_a_thread_was_using(clip: Clip, fork_while_busy: OpenShard) -> None:
    child = os.fork()
    if child == 0:
        fresh = open_shards.get(ShardSource.of_path(clip.name))
        right = fresh is not fork_while_busy and np.array_equal(first_frame(open_shards, clip.path), clip.frames[0])
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert open_shards.get(ShardSource.of_path(clip.name)) is fork_while_busy
