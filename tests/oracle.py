# SPDX-License-Identifier: Apache-2.0
"""The oracle: PyAV's sequential decode of a whole file, one thread, from the first packet to the last."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
from av.error import FFmpegError

Picture = npt.NDArray[np.uint8]
FrameFunction = Callable[[av.VideoFrame], Picture]


def rgb_of(frame: av.VideoFrame) -> Picture:
    """PyAV's own RGB of a frame, of any sample format."""
    return frame.to_ndarray(format="rgb24").astype(np.uint8, copy=False)


def digest_of(picture: Picture) -> bytes:
    """A digest that two pictures share when shape and every byte are the same."""
    return hashlib.blake2b(repr(picture.shape).encode() + picture.tobytes(), digest_size=16).digest()


@dataclass(frozen=True)
class OracleFrame:
    """One presented frame. Pixels are kept as a digest, so that a film costs no memory."""

    digest: bytes
    width: int
    height: int
    pts: int | None  # ticks of the oracle's time_base
    damaged: bool  # the decoder itself says so


@dataclass(frozen=True)
class Oracle:
    """What the whole file shows, in presentation order."""

    path: Path
    codec: str
    frames: tuple[OracleFrame, ...]
    time_base: Fraction
    complaints: tuple[str, ...]  # what decoder and demuxer said at level "error", and packets that were refused

    def seconds_at(self, index: int) -> float:
        """Presentation time of frame `index` in seconds."""
        pts = self.frames[index].pts
        assert pts is not None
        return float(pts * self.time_base)

    def explain(self, index: int, got: Picture) -> str:
        """What a wrong picture is: another frame, or how far off."""
        digest = digest_of(got)
        others = [i for i, frame in enumerate(self.frames) if frame.digest == digest]
        if others:
            return f"frame {index} of {self.path.name} came back as frame {others}"
        right = picture_at(self.path, index)
        if right.shape != got.shape:
            return f"frame {index} of {self.path.name} has shape {got.shape}, not {right.shape}"
        off = np.abs(right.astype(np.int16) - got)
        return f"frame {index} of {self.path.name}: {np.count_nonzero(off.max(axis=2))} pixels differ, by up to {off.max()}"


def assert_same_picture(got: Picture, oracle: Oracle, index: int, context: str = "") -> None:
    """Every byte of `got` is that of frame `index`."""
    if digest_of(got) != oracle.frames[index].digest:
        raise AssertionError(f"{oracle.explain(index, got)} {context}".rstrip())


def decode_sequentially(path: Path, complaints: list[str] | None = None) -> Iterator[av.VideoFrame]:
    """Every frame that PyAV shows, refused packets passed over (and named in `complaints`)."""
    with av.open(str(path)) as file:
        stream = file.streams.best("video")
        if stream is None:
            raise ValueError(f"{path.name} has no video stream")
        stream.codec_context.thread_count = 1
        stream.codec_context.thread_type = "NONE"
        for packet in file.demux(stream):
            try:
                frames = packet.decode()
            except FFmpegError as error:
                if complaints is not None:
                    complaints.append(str(error))
                continue
            for frame in frames:
                assert isinstance(frame, av.VideoFrame)
                yield frame


def picture_at(path: Path, index: int) -> Picture:
    """The RGB of one frame, by decoding everything before it."""
    for i, frame in enumerate(decode_sequentially(path)):
        if i == index:
            return rgb_of(frame)
    raise IndexError(index)


def visible_planes(frame: av.VideoFrame) -> bytes:
    """The bytes of all planes without padding: what decoder test suites publish checksums of."""
    out = b""
    for plane in frame.planes:
        bytes_per_sample = 2 if frame.format.components[0].bits > 8 else 1
        rows = np.frombuffer(memoryview(plane), np.uint8).reshape(plane.height, plane.line_size)
        out += rows[:, : plane.width * bytes_per_sample].tobytes()
    return out


@functools.lru_cache(maxsize=4)
def decode_all(path: Path, convert: FrameFunction = rgb_of) -> Oracle:
    """Decode a whole file and keep a digest of each frame's picture (RGB, or what `convert` makes of it)."""
    previous = av.logging.get_level()
    complaints: list[str] = []
    frames: list[OracleFrame] = []
    time_base, codec = Fraction(0), ""
    av.logging.set_level(av.logging.ERROR)
    try:
        with av.logging.Capture() as captured:
            with av.open(str(path)) as file:
                stream = file.streams.best("video")
                if stream is None:
                    raise ValueError(f"{path.name} has no video stream")
                codec = stream.codec_context.name
                time_base = stream.time_base or Fraction(0)
            for frame in decode_sequentially(path, complaints):
                picture = convert(frame)
                frames.append(
                    OracleFrame(digest_of(picture), picture.shape[1], picture.shape[0], frame.pts, frame.is_corrupt)
                )
    finally:
        av.logging.set_level(previous)
    complaints += [message.strip() for level, _, message in captured if level <= av.logging.ERROR]
    return Oracle(path, codec, tuple(frames), time_base, tuple(complaints))
