# SPDX-License-Identifier: Apache-2.0
"""A whole video in order, as planes: what is encoded anew, and what a shard is measured against. PyAV decodes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt

from daft_sparsevideo.errors import FrameDecodeError, ShardFormatError, ShardNotFoundError, ShardReadError

Planes = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]
"""Y [height, width], Cb and Cr [height / 2, width / 2] of a 4:2:0 frame: uint8, or uint16 for 10 bits."""

_BIT_DEPTH = {"yuv420p": 8, "yuvj420p": 8, "yuv420p10le": 10}  # of the formats that are taken


@dataclass(frozen=True)
class SourceVideo:
    """A local video file, of which nothing is decoded yet but its first frame.

    Attributes:
        path: The file.
        codec: Name of the codec, such as "av1".
        width, height: Pixels.
        bit_depth: 8 or 10.
        time_base: Numerator and denominator of the unit of `pts`, in seconds.
        pts: int64 [N], when each frame is shown, rising.
        packet_bytes: int64 [N], bytes of the packet of each frame.
        is_key: bool [N], whether the container says that decoding can start there.
        end_pts: Where the last frame's display ends.
        average_fps: As a fraction; 30 where the container does not tell.
        sample_aspect_ratio: Width and height of a pixel; (0, 1) if unknown.
        colour: The tags of colour by the names that `_encoder.EncoderSettings` takes.
        rotation: Degrees clockwise by which the video asks to be turned.
    """

    path: str
    codec: str
    width: int
    height: int
    bit_depth: int
    time_base: tuple[int, int]
    pts: npt.NDArray[np.int64]
    packet_bytes: npt.NDArray[np.int64]
    is_key: npt.NDArray[np.bool_]
    end_pts: int
    average_fps: tuple[int, int]
    sample_aspect_ratio: tuple[int, int]
    colour: dict[str, int]
    rotation: int

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> SourceVideo:
        """Read the times of all frames, and the form of the first one.

        Raises:
            ShardNotFoundError: There is no such file.
            ShardFormatError: It is no video, its frames are not 4:2:0 in 8 or 10 bits or of odd size, or they have
                no times.
            FrameDecodeError: Its first frame is damaged.
            ShardReadError: It cannot be read.
        """
        path = os.fspath(path)
        if not Path(path).exists():
            raise ShardNotFoundError(f"there is no file {path}", shard=path)
        try:
            with av.open(path) as file:
                return cls._of(path, file)
        except av.error.FFmpegError as error:
            kind = ShardFormatError if isinstance(error, (av.error.InvalidDataError, ValueError)) else ShardReadError
            raise kind(f"{path} cannot be read: {error.strerror}", shard=path) from error

    @classmethod
    def _of(cls, path: str, file: Any) -> SourceVideo:
        video = file.streams.best("video")
        if video is None:
            raise ShardFormatError(f"{path} has no video", shard=path)
        shown = [packet for packet in file.demux(video) if packet.size and not packet.is_discard]
        if not shown or any(packet.pts is None for packet in shown):
            raise ShardFormatError(f"{path} has no frames, or frames without times", shard=path)
        pts = np.array([packet.pts for packet in shown], np.int64)
        order = np.argsort(pts, kind="stable")
        file.seek(0, backward=True)
        first = next(iter(file.decode(video)), None)
        if first is None:
            raise FrameDecodeError(f"{path}: its first frame cannot be decoded", shard=path)
        return cls(
            path,
            video.codec_context.codec.canonical_name,
            first.width,
            first.height,
            _checked_depth(path, first),
            video.time_base.as_integer_ratio(),
            pts[order],
            np.array([packet.size for packet in shown], np.int64)[order],
            np.array([packet.is_keyframe for packet in shown], np.bool_)[order],
            int(pts.max()) + _last_duration(shown, pts[order]),
            (video.average_rate or Fraction(30)).as_integer_ratio(),
            (video.sample_aspect_ratio or Fraction(0)).as_integer_ratio(),
            _colour(first, video.codec_context),
            -first.rotation % 360,
        )

    @property
    def num_frames(self) -> int:
        """Frames that are shown."""
        return self.pts.size

    def frames(self) -> Iterator[Any]:
        """Decode all frames in order, as `av.VideoFrame`.

        Raises:
            FrameDecodeError: A frame is damaged or missing, or is not what the container says.
        """
        decoded = 0
        try:
            with av.open(self.path) as file:
                video: Any = file.streams.best("video")
                # One thread: others that log an error wait for the GIL, and a decoder that is closed waits for them.
                video.codec_context.thread_count = 1
                frame: Any
                for frame in file.decode(video):
                    if frame.is_corrupt or decoded == self.num_frames or frame.pts != self.pts[decoded]:
                        self._fail(decoded, "is damaged, or not the one that the container tells of")
                    if (frame.width, frame.height) != (self.width, self.height):
                        self._fail(decoded, f"is of {frame.width}x{frame.height}, not {self.width}x{self.height}")
                    yield frame
                    decoded += 1
        except av.error.FFmpegError as error:
            self._fail(decoded, f"cannot be decoded: {error.strerror}", error)
        if decoded < self.num_frames:
            self._fail(decoded, f"is missing; the container tells of {self.num_frames} frames")

    def time_s(self, frame: int) -> float:
        """When a frame is shown, in seconds."""
        return float(self.pts[min(frame, self.num_frames - 1)] * Fraction(*self.time_base))

    def _fail(self, frame: int, what: str, cause: Exception | None = None) -> None:
        where = f"frame {frame} at {self.time_s(frame):.6f} s of {self.path}"
        raise FrameDecodeError(f"{where} {what}", shard=self.path, time_s=self.time_s(frame)) from cause


def planes_of(frame: Any) -> Planes:
    """The planes of a 4:2:0 frame of PyAV; they share its memory."""
    dtype = np.uint16 if frame.format.name == "yuv420p10le" else np.uint8
    y, u, v = (np.frombuffer(plane, dtype).reshape(plane.height, -1)[:, : plane.width] for plane in frame.planes)
    return y, u, v


def copied_planes(frame: Any) -> Planes:
    """The planes of a 4:2:0 frame of PyAV, in memory of their own."""
    y, u, v = (plane.copy() for plane in planes_of(frame))
    return y, u, v


def _checked_depth(path: str, frame: Any) -> int:
    depth = _BIT_DEPTH.get(frame.format.name)
    if depth is None:
        raise ShardFormatError(
            f"{path} is {frame.format.name}: only 4:2:0 video of 8 or 10 bits can be encoded anew", shard=path
        )
    if frame.width % 2 or frame.height % 2:
        raise ShardFormatError(
            f"{path} is {frame.width}x{frame.height}: 4:2:0 video of odd size cannot be encoded anew, "
            "crop or pad it to even sizes first",
            shard=path,
        )
    return depth


def _last_duration(packets: list[Any], pts: npt.NDArray[np.int64]) -> int:
    last = max(packets, key=lambda packet: packet.pts)
    if last.duration:
        return int(last.duration)
    return int(pts[-1] - pts[-2]) if pts.size > 1 else 1


def _colour(frame: Any, context: Any) -> dict[str, int]:
    return {
        "color_primaries": int(context.color_primaries),
        "color_trc": int(context.color_trc),
        "color_space": int(frame.colorspace),
        "color_range": int(frame.color_range),
    }
