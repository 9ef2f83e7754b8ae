# SPDX-License-Identifier: Apache-2.0
"""The anchor cache: same pixels, far fewer pictures, bounded, and no one's memory of another."""

from __future__ import annotations

import os
import random
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import daft_sparsevideo
from daft_sparsevideo import VideoDecoder, anchor_cache_use, set_anchor_cache
from daft_sparsevideo.open_shards import open_shards
from encoding import encode
from oracle import assert_same_picture, decode_all
from own_process import run_alone
from requests_of_frames import random_request
from scenes import draw_scene
from streams import STREAMS, Stream, stream_path

MANY_BYTES = 256 << 20


@pytest.fixture(autouse=True)
def cache() -> Iterator[None]:
    open_shards.clear()
    set_anchor_cache(MANY_BYTES)
    yield
    set_anchor_cache(0)


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: str(stream.name))
def test_frames_are_exact_and_cost_less_the_second_time(stream: Stream) -> None:
    oracle = decode_all(stream_path(stream))
    decoder = VideoDecoder(stream_path(stream))
    rng = random.Random(stream.name)
    numbers = list(range(len(decoder)))
    pictures_of_each_epoch = []
    for _ in range(2):
        rng.shuffle(numbers)
        reconstructed = 0
        for index in numbers:
            batch = decoder.get_frames_at([index])
            assert_same_picture(batch.data[0], oracle, index)
            assert batch.stats.fallbacks == 0
            reconstructed += batch.stats.reconstructed
        pictures_of_each_epoch.append(reconstructed)
        for _ in range(3):
            request = random_request(rng, len(decoder))
            for picture, index in zip(decoder.get_frames_at(request).data, request, strict=True):
                assert_same_picture(picture, oracle, index)
    assert pictures_of_each_epoch[1] <= len(numbers), "one picture a frame at most: all anchors are there"


def every_seventeenth_is_intra(path: Path) -> Path:
    """Like DDRA: intra anchors, and between them pictures that refer to the two around them and to nothing else."""
    return encode(
        path,
        draw_scene("mixed", 129, 96, 64),
        params="keyint=250:scenecut=0:bframes=16:b-adapt=0:b-pyramid=none:ref=2:open-gop=1",
        picture_types=("I" + "B" * 15) * 8 + "I",
    )


def test_shuffled_epoch_over_intra_anchors_reconstructs_less_than_half(tmp_path: Path) -> None:
    path = every_seventeenth_is_intra(tmp_path / "anchors.mp4")
    order = np.random.default_rng(3).permutation(len(VideoDecoder(path)))
    frames = decode_all(path)
    costs = []
    for max_bytes in (0, MANY_BYTES):
        set_anchor_cache(max_bytes)
        decoder = VideoDecoder(path)
        batches = [(int(index), decoder.get_frames_at([index])) for index in order]
        for index, batch in batches:
            assert_same_picture(batch.data[0], frames, index)
        costs.append(sum(batch.stats.reconstructed for _, batch in batches))
    without, with_cache = costs
    assert without >= 2 * with_cache, costs


def test_bytes_are_bounded_and_the_oldest_go_first(tmp_path: Path) -> None:
    path = every_seventeenth_is_intra(tmp_path / "anchors.mp4")
    decoder = VideoDecoder(path)
    decoder.get_frames_at([8])  # between the first two anchors
    two_anchors = anchor_cache_use().nbytes
    assert two_anchors > 2 * 96 * 64 * 3 // 2
    set_anchor_cache(0)
    assert anchor_cache_use().nbytes == 0
    set_anchor_cache(2 * two_anchors)
    for index in (8, 40, 72, 104):
        decoder.get_frames_at([index])
        assert anchor_cache_use().nbytes <= 2 * two_anchors
    assert decoder.plan_at([9]).restored == 0
    assert decoder.plan_at([105]).restored == 2
    assert decoder.plan_at([105]).reconstructed == 1


def test_cache_forgets_a_shard_that_is_closed(tmp_path: Path) -> None:
    path = every_seventeenth_is_intra(tmp_path / "anchors.mp4")
    VideoDecoder(path.read_bytes()).get_frames_at([8])
    assert anchor_cache_use().nbytes == 0
    decoder = VideoDecoder(path)
    decoder.get_frames_at([8])
    assert anchor_cache_use().nbytes > 0
    del decoder
    open_shards.clear()
    assert anchor_cache_use().nbytes == 0


def test_damaged_pictures_are_not_kept(tmp_path: Path) -> None:
    path = every_seventeenth_is_intra(tmp_path / "anchors.mp4")
    decoder = VideoDecoder(path)
    index = decoder._opened.shard.index
    second = int(index.picture_position[np.argsort(index.picture_pts)[16]])
    data = bytearray(path.read_bytes())
    data[second + 60 : second + 200] = os.urandom(140)
    spoilt = tmp_path / "spoilt.mp4"
    spoilt.write_bytes(data)
    decoder = VideoDecoder(spoilt)
    for _ in range(2):
        with pytest.raises(daft_sparsevideo.errors.FrameDecodeError):
            decoder.get_frames_at([16])
        with pytest.raises(daft_sparsevideo.errors.FrameDecodeError):
            decoder.get_frames_at([8])


def test_threads_share_the_cache(tmp_path: Path) -> None:
    path = every_seventeenth_is_intra(tmp_path / "anchors.mp4")
    frames = decode_all(path)
    set_anchor_cache(300_000)  # so small that they push out each other's
    wrong: list[int] = []

    def ask(seed: int) -> None:
        decoder, rng = VideoDecoder(path, num_threads=2), random.Random(seed)
        for _ in range(60):
            request = random_request(rng, len(decoder))
            for picture, index in zip(decoder.get_frames_at(request).data, request, strict=True):
                try:
                    assert_same_picture(picture, frames, index)
                except AssertionError:
                    wrong.append(index)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def decode_in_a_forked_child(path: str) -> list[int]:
    set_anchor_cache(MANY_BYTES)
    decoder = VideoDecoder(path)
    decoder.get_frames_at([8, 100])
    held = anchor_cache_use().nbytes
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        begins_with = anchor_cache_use()
        first = decoder.get_frames_at([8]).stats.restored
        second = decoder.get_frames_at([8]).stats.restored
        os.write(write_end, f"{begins_with.nbytes} {begins_with.max_bytes} {first} {second}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    return [held, *map(int, os.read(read_end, 100).split())]


def test_forked_child_begins_with_an_empty_cache_of_the_same_bound(tmp_path: Path) -> None:
    path = every_seventeenth_is_intra(tmp_path / "anchors.mp4")
    held, begins_with, bound, first, second = run_alone(decode_in_a_forked_child, str(path))
    assert held > 0
    assert (begins_with, bound, first, second) == (0, MANY_BYTES, 0, 2)


def peak_mib_of_random_requests(path: str, max_bytes: int) -> int:
    set_anchor_cache(max_bytes)
    decoder, rng = VideoDecoder(path), random.Random(1)
    for _ in range(200):
        decoder.get_frames_at([rng.randrange(len(decoder))])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def test_process_grows_by_hardly_more_than_the_bound(tmp_path: Path) -> None:
    pictures = (np.full((480, 640, 3), number % 250, np.uint8) for number in range(200))  # anchors of 150 MiB
    path = encode(tmp_path / "large.mp4", pictures, params="keyint=40:bframes=0", options={"preset": "ultrafast"})
    without, with_cache = (run_alone(peak_mib_of_random_requests, str(path), mib << 20) for mib in (0, 32))
    assert with_cache - without < 32 + 48


def test_bounds_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        set_anchor_cache(-1)
    for bound in ("1GB", 1e9, True):
        with pytest.raises(TypeError, match="whole number of bytes"):
            set_anchor_cache(bound)  # type: ignore[arg-type]
