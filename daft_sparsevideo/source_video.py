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

from daft_sparsevideo.errors import (
    FrameDecodeError,
    ShardFormatError,
    ShardNotFoundError,
    ShardReadError,
    SparseVideoError,
)

Planes = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]
"""Y [height, width], Cb and Cr [height / 2, width / 2] of a 4:2:0 frame: uint8, or uint16 for 10 bits."""

_UNTOLD, _LEFT, _CENTER, _TOP_LEFT = range(4)
_LEFT_CODECS = {"h264", "hevc", "mpeg2video", "mpeg4"}  # untold is left there; elsewhere FFmpeg takes it for the centre
_BIT_DEPTH = {"yuv420p": 8, "yuvj420p": 8, "yuv420p10le": 10}  # of the formats that are taken


@dataclass(frozen=True)
class SourceVideo:
    """A local video file, of which nothing is decoded yet but its first frame.

    Attributes:
        path: The file.
        name: What messages call it.
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
    name: str
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
    def open(cls, path: str | os.PathLike[str], *, name: str | None = None) -> SourceVideo:
        """Read the times of all frames, and the form of the first one.

        Args:
            path: The file.
            name: What messages call it; None: by its path.

        Raises:
            ShardNotFoundError: There is no such file.
            ShardFormatError: It is no video or is cut short, its frames are not 4:2:0 in 8 or 10 bits or of odd
                size, or their times are missing or repeat.
            FrameDecodeError: Its first frame is damaged.
            ShardReadError: It cannot be read.
        """
        path = os.fspath(path)
        name = path if name is None else name
        try:
            if not Path(path).exists():
                raise ShardNotFoundError(f"there is no file {name}", shard=name)
            with av.open(path, metadata_errors="replace") as file:
                return cls._of(path, name, file)
        except av.error.FFmpegError as error:
            kind = ShardFormatError if isinstance(error, (EOFError, ValueError)) else ShardReadError
            raise kind(f"{name} cannot be read: {error.strerror}", shard=name) from error
        except SparseVideoError:
            raise
        except ValueError as error:  # a null byte in the path
            raise ShardReadError(f"{name} cannot be read: {error}", shard=name) from error

    @classmethod
    def _of(cls, path: str, name: str, file: Any) -> SourceVideo:
        video = file.streams.best("video")
        if video is None:
            raise ShardFormatError(f"{name} has no video", shard=name)
        if video.codec_context is None:
            raise ShardFormatError(f"{name} is of a codec that PyAV cannot decode", shard=name)
        packets = [packet for packet in file.demux(video) if packet.size]
        _check_whole(path, name, file, packets)
        shown = [packet for packet in packets if not packet.is_discard]
        if not shown or any(packet.pts is None for packet in shown):
            raise ShardFormatError(f"{name} has no frames, or frames without times", shard=name)
        pts = np.array([packet.pts for packet in shown], np.int64)
        order = np.argsort(pts, kind="stable")
        if (same := np.flatnonzero(np.diff(pts[order]) == 0)).size:
            time_s = float(pts[order][same[0]] * video.time_base)
            raise ShardFormatError(f"{name} has two frames at the same time, {time_s:.6f} s", shard=name)
        file.seek(0, backward=True)
        first = next(iter(file.decode(video)), None)
        if first is None:
            raise FrameDecodeError(f"{name}: its first frame cannot be decoded", shard=name)
        return cls(
            path,
            name,
            video.codec_context.codec.canonical_name,
            first.width,
            first.height,
            _checked_depth(name, first),
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
            with av.open(self.path, metadata_errors="replace") as file:
                video: Any = file.streams.best("video")
                # One thread: others that log an error wait for the GIL, and a decoder that is closed waits for them.
                video.codec_context.thread_count = 1
                for frame in file.decode(video):
                    self._check(frame, decoded)
                    yield frame
                    decoded += 1
        except av.error.FFmpegError as error:
            self._fail(decoded, f"cannot be decoded: {error.strerror}", error)
        if decoded < self.num_frames:
            self._fail(decoded, f"is missing; the container tells of {self.num_frames} frames")

    def time_s(self, frame: int) -> float:
        """When a frame is shown, in seconds."""
        return float(self.pts[min(frame, self.num_frames - 1)] * Fraction(*self.time_base))

    def _check(self, frame: Any, number: int) -> None:
        if frame.is_corrupt or number == self.num_frames or frame.pts != self.pts[number]:
            self._fail(number, "is damaged, or not the one that the container tells of")
        if (frame.width, frame.height) != (self.width, self.height):
            self._fail(number, f"is of {frame.width}x{frame.height}, not {self.width}x{self.height}")
        if _BIT_DEPTH.get(frame.format.name) != self.bit_depth:
            self._fail(
                number, f"is {frame.format.name}, unlike the first one, which has {self.bit_depth} bits of 4:2:0"
            )

    def _fail(self, frame: int, what: str, cause: Exception | None = None) -> None:
        where = f"frame {frame} at {self.time_s(frame):.6f} s of {self.name}"
        raise FrameDecodeError(f"{where} {what}", shard=self.name, time_s=self.time_s(frame)) from cause


def planes_of(frame: Any) -> Planes:
    """The planes of a 4:2:0 frame of PyAV; they share its memory."""
    dtype = np.uint16 if frame.format.name == "yuv420p10le" else np.uint8
    y, u, v = (np.frombuffer(plane, dtype).reshape(plane.height, -1)[:, : plane.width] for plane in frame.planes)
    return y, u, v


def copied_planes(frame: Any) -> Planes:
    """The planes of a 4:2:0 frame of PyAV, in memory of their own."""
    y, u, v = (plane.copy() for plane in planes_of(frame))
    return y, u, v


def _check_whole(path: str, name: str, file: Any, packets: list[Any]) -> None:
    """Raise ShardFormatError for a file that ends before it should; demuxers pass over that in silence."""
    is_cut = any(packet.is_corrupt for packet in packets)
    if "mp4" in file.format.name.split(","):
        is_cut = is_cut or _last_box_end(path) > file.size
    elif "matroska" in file.format.name.split(","):
        is_cut = is_cut or _segment_end(path) > file.size
    if is_cut:
        raise ShardFormatError(f"{name} is cut short, or damaged", shard=name)


def _last_box_end(path: str) -> int:
    """Where the last box of an MP4 file ends by what it says itself (ISO/IEC 14496-12, 4.2)."""
    size_bytes, at = Path(path).stat().st_size, 0
    with Path(path).open("rb") as file:
        while at + 8 <= size_bytes:
            file.seek(at)
            size = int.from_bytes(file.read(4))
            if size == 1:
                file.seek(at + 8)
                size = int.from_bytes(file.read(8))
            if size < 8:  # 0: to the end of the file, whatever that is
                return size_bytes
            at += size
    return at


def _segment_end(path: str) -> int:
    """Where the segment of a Matroska file ends by what it says itself (RFC 8794, 4 and 6); 0 if it does not."""
    with Path(path).open("rb") as file:
        at = 0
        for identity in (b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"):  # EBML header, segment
            file.seek(at)
            head = file.read(12)
            if head[:4] != identity or len(head) < 12:
                return 0
            length = 9 - head[4].bit_length()  # bytes of the size, by its leading zeros
            size = int.from_bytes(head[4 : 4 + length]) & ((1 << 7 * length) - 1)
            if length > 8 or size == (1 << 7 * length) - 1:  # unknown
                return 0
            at += 4 + length + size
    return at


def _checked_depth(name: str, frame: Any) -> int:
    depth = _BIT_DEPTH.get(frame.format.name)
    if depth is None:
        raise ShardFormatError(
            f"{name} is {frame.format.name}: only 4:2:0 video of 8 or 10 bits can be encoded anew", shard=name
        )
    if frame.width % 2 or frame.height % 2:
        raise ShardFormatError(
            f"{name} is {frame.width}x{frame.height}: 4:2:0 video of odd size cannot be encoded anew, "
            "crop or pad it to even sizes first",
            shard=name,
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
        "chroma_location": _chroma_location(context),
    }


def _chroma_location(context: Any) -> int:
    """Where FFmpeg takes the chroma samples to be, by its AVChromaLocation, if an encoder would not tell the same.

    That H.264 and HEVC sources tell another place than their standards' own, PyAV doesn't show.
    """
    codec = context.codec.canonical_name
    if codec == "av1":
        box = context.extradata or b""  # av1C, of which these two bits are chroma_sample_position
        position = box[2] & 3 if len(box) > 2 else 0
        return {1: _LEFT, 2: _TOP_LEFT}.get(position, _CENTER)
    return _UNTOLD if codec in _LEFT_CODECS else _CENTER
