# SPDX-License-Identifier: Apache-2.0
"""The protocol: 170 made streams, random requests to one reused decoder each, every pixel that of PyAV.

`make test` asks ten requests of each stream, SPARSEVIDEO_EXACTNESS=full (that is `make exactness`) a hundred.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from av1_streams import AV1_STREAMS, Av1Stream, av1_path
from daft_sparsevideo import VideoDecoder, _core
from oracle import Oracle, assert_same_picture, decode_all
from requests_of_frames import random_request
from streams import STREAMS, Stream, stream_path

WITHOUT_PTS = {
    ".avi",
    ".h264",
    ".hevc",
    ".obu",
}  # PyAV's times of these are guesses (seen: 1, 3, 4, 2 in an AVI with B pictures)
REQUESTS = 100 if os.environ.get("SPARSEVIDEO_EXACTNESS") == "full" else 10


ALL_STREAMS: list[Stream | Av1Stream] = [*STREAMS, *AV1_STREAMS]


def path_of(stream: Stream | Av1Stream) -> Path:
    return av1_path(stream) if isinstance(stream, Av1Stream) else stream_path(stream)


class Tally:
    """What all streams together came to."""

    def __init__(self) -> None:
        self.streams = self.sparse_streams = self.requests = self.compared = self.unique = self.reconstructed = 0
        self.fallbacks = 0

    def __str__(self) -> str:
        return (
            f"exactness: {self.streams} streams ({self.sparse_streams} with a reference graph), {self.requests} requests, "
            f"{self.compared} frames compared, {self.reconstructed / max(self.unique, 1):.2f} pictures reconstructed "
            f"for each different frame, {self.fallbacks} fallbacks"
        )


@pytest.fixture(scope="module")
def tally(add_summary_line: Callable[[str], None]) -> Iterator[Tally]:
    tally = Tally()
    yield tally
    add_summary_line(str(tally))


def ask(decoder: VideoDecoder, oracle: Oracle, request: list[int], tally: Tally) -> None:
    """One request: every picture and every time is the oracle's."""
    sizes = {(oracle.frames[index].width, oracle.frames[index].height) for index in request}
    if len(sizes) > 1:  # VideoDecoder gives one array: one size at a time
        for size in sizes:
            same = [i for i in request if (oracle.frames[i].width, oracle.frames[i].height) == size]
            ask(decoder, oracle, same, tally)
        return
    batch = decoder.get_frames_at(request)
    assert len(batch.data) == len(request)
    for position, index in enumerate(request):
        assert_same_picture(batch.data[position], oracle, index, f"as number {position} of {request}")
    if oracle.path.suffix not in WITHOUT_PTS:
        np.testing.assert_allclose(batch.pts_s, [oracle.seconds_at(index) for index in request], rtol=1e-12, atol=1e-9)
    assert batch.stats.requested == len(request)
    assert batch.stats.unique == len(set(request))
    tally.requests += 1
    tally.compared += len(request)
    tally.unique += batch.stats.unique
    tally.reconstructed += batch.stats.reconstructed
    tally.fallbacks += batch.stats.fallbacks


@pytest.mark.parametrize("stream", ALL_STREAMS, ids=lambda stream: str(stream.name))
def test_sparse_frames_equal_full_decode(stream: Stream | Av1Stream, tally: Tally) -> None:
    path = path_of(stream)
    oracle = decode_all(path)
    assert oracle.complaints == ()
    decoder = VideoDecoder(path)
    assert len(decoder) == len(oracle.frames)
    index = _core.Shard(str(path)).index
    assert index.has_graph == getattr(stream, "graph", True), index.fallback_reason
    tally.streams += 1
    tally.sparse_streams += index.has_graph
    fallbacks_before = tally.fallbacks
    rng = random.Random(stream.name)
    for _ in range(REQUESTS):
        ask(decoder, oracle, random_request(rng, len(decoder)), tally)
    assert tally.fallbacks == fallbacks_before, "exactness must not come from the ladder"


@pytest.mark.parametrize("stream", ALL_STREAMS[::4], ids=lambda stream: str(stream.name))
def test_pixels_are_the_same_for_any_number_of_threads(stream: Stream | Av1Stream) -> None:
    path = path_of(stream)
    oracle = decode_all(path)
    everywhere = [*range(0, len(oracle.frames), 5), *range(len(oracle.frames) - 1, 0, -7)]
    for num_threads in (1, 2, 4):
        batch = VideoDecoder(path, num_threads=num_threads).get_frames_at(everywhere)
        for position, index in enumerate(everywhere):
            assert_same_picture(batch.data[position], oracle, index, f"with {num_threads} threads")


def test_protocol_notices_a_neighbouring_frame() -> None:
    """The harness can fail: a decoder that is off by one, late in a clip that hardly moves, is caught and named."""

    class OffByOne(VideoDecoder):
        def get_frames_at(self, indices):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            return super().get_frames_at([min(i + 1, len(self) - 1) for i in indices])

    path = stream_path(next(stream for stream in STREAMS if stream.scene == "still"))
    with pytest.raises(AssertionError, match=r"frame 40 .* came back as frame \[41\]"):
        ask(OffByOne(path), decode_all(path), [40], Tally())
