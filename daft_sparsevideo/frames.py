# SPDX-License-Identifier: Apache-2.0
"""`VideoDecoder`: exact frames of one video, by number or by time, without Daft."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
import numpy.typing as npt

from daft_sparsevideo.errors import FrameOutOfRangeError, ShardFormatError
from daft_sparsevideo.index_places import place_in
from daft_sparsevideo.open_shards import OpenShard, ShardSource, open_shards
from daft_sparsevideo.resolve import NO_FRAME, Match, check_match, check_tolerance
from daft_sparsevideo.stats import DecodeStats, count_decode


@dataclass(frozen=True)
class VideoMetadata:
    """What a video says of itself.

    Attributes:
        codec: Name of the codec, such as "h264".
        width, height: Pixels of the first frame as it is coded, before `rotation`.
        num_frames: Frames that are shown.
        begin_s, end_s: The first frame's time, and the end of the last one's interval (not inside it), in seconds.
        average_fps: Frames a second as the container says, 0 when it does not.
        pix_fmt: Name of the coded pixel format, such as "yuv420p".
        rotation: Degrees clockwise by which the video asks to be turned: 0, 90, 180 or 270.

    >>> metadata = VideoDecoder(video_path).metadata
    >>> metadata.codec, metadata.width, metadata.height, metadata.average_fps
    ('h264', 96, 64, 30.0)
    """

    codec: str
    width: int
    height: int
    num_frames: int
    begin_s: float
    end_s: float
    average_fps: float
    pix_fmt: str
    rotation: int


@dataclass(frozen=True, eq=False, repr=False)
class FrameBatch:
    """Frames in the order they were asked for.

    Attributes:
        data: uint8 [N, height, width, 3], RGB.
        pts_s: float64 [N], when each frame begins, in seconds.
        duration_s: float64 [N], until the next frame begins.
        stats: What decoding them took.

    >>> VideoDecoder(video_path).get_frames_at([5]).duration_s.round(4).tolist()
    [0.0333]
    """

    data: npt.NDArray[np.uint8]
    pts_s: npt.NDArray[np.float64]
    duration_s: npt.NDArray[np.float64]
    stats: DecodeStats

    def __repr__(self) -> str:
        arrays = (self.data, self.pts_s, self.duration_s)
        data, pts_s, duration_s = (f"{array.dtype}{list(array.shape)}" for array in arrays)
        return f"FrameBatch(data={data}, pts_s={pts_s}, duration_s={duration_s}, stats={self.stats})"


class VideoDecoder:
    """Exact frames of one video for the price of the pictures they really need.

    The pixels are those of a decode of the whole file, in any order of asking. An index of the file is made when it
    is first opened; decoders of the same path share it.

    Args:
        source: A path, the bytes of a video, or a seekable binary file object. A file object shares its position
            with forked processes, so give the path to those.
        num_threads: Decoder threads for one call; None (default) lets the process-wide budget decide.
        match: How `get_frames_played_at` chooses: "nearest" (default) takes the frame whose time is nearest,
            "played" the one on the screen.
        tolerance_s: Seconds by which a time may miss. None (default) is half of the frame's own interval.
        apply_rotation: Turn frames as the video's rotation asks. False (default) returns them as coded.
        index: The index file to take instead of indexing the video; it must be right. None (default): the one beside
            the video, if `write_index` or `lerobot.build_index` left one there that is right.

    Raises:
        IndexFileError: `index` is damaged, or was made of another video or by another version.
        ShardNotFoundError: There is no such file.
        ShardReadError: The bytes cannot be read.
        ShardFormatError: It is no video, or of an unsupported kind.

    Example:
        >>> decoder = VideoDecoder(video_path)
        >>> decoder
        VideoDecoder('clip.mp4', h264, 90 frames of 96x64, 30 fps)
        >>> decoder.get_frames_at([0, 45, -1]).data.shape
        (3, 64, 96, 3)
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | bytes | BinaryIO,
        *,
        num_threads: int | None = None,
        match: Match = "nearest",
        tolerance_s: float | None = None,
        apply_rotation: bool = False,
        index: str | os.PathLike[str] | None = None,
    ) -> None:
        self._match = check_match(match)
        self._tolerance_s = check_tolerance(tolerance_s)
        self._num_threads = check_num_threads(num_threads)
        self._apply_rotation = bool(apply_rotation)
        file = None if index is None else str(Path(index).absolute())
        if isinstance(source, (str, os.PathLike)):
            self._opened = open_shards.get(replace(ShardSource.of_path(os.fspath(source)), index=file))
        elif isinstance(source, (bytes, bytearray, memoryview)):
            self._opened = _open_unshared(bytes(source), f"<{len(source)} bytes>", file)
        elif hasattr(source, "read") and hasattr(source, "seek"):
            self._opened = _open_unshared(source, str(getattr(source, "name", source)), file)
        else:
            raise TypeError(f"source must be a path, bytes or a binary file object, not {type(source).__name__}")

    @property
    def metadata(self) -> VideoMetadata:
        """What the video says of itself.

        >>> metadata = VideoDecoder(video_path).metadata
        >>> metadata.num_frames, metadata.begin_s, metadata.end_s
        (90, 0.0, 3.0)
        """
        index, times = self._opened.shard.index, self._opened.times
        numerator, denominator = index.average_fps
        return VideoMetadata(
            codec=index.codec,
            width=index.width,
            height=index.height,
            num_frames=index.num_frames,
            begin_s=times.begin_s,
            end_s=times.end_s,
            average_fps=numerator / denominator if denominator else 0.0,
            pix_fmt=index.pix_fmt,
            rotation=index.rotation,
        )

    def __len__(self) -> int:
        return self._opened.num_frames

    def __repr__(self) -> str:
        metadata = self.metadata
        name = Path(self._opened.name).name
        size = f"{metadata.num_frames} frames of {metadata.width}x{metadata.height}"
        return f"VideoDecoder({name!r}, {metadata.codec}, {size}, {metadata.average_fps:.5g} fps)"

    def get_frames_at(self, indices: Sequence[int] | npt.NDArray[np.integer]) -> FrameBatch:
        """Decode frames by number.

        Args:
            indices: Frame numbers in presentation order, in any order and with repeats; negative ones count from
                the end.

        Returns:
            The frames in the order of `indices`; a repeated one is decoded once.

        Raises:
            FrameOutOfRangeError: A number is outside [-len(self), len(self)).
            FrameDecodeError: A frame's pictures are damaged.
            ShardFormatError: The frames differ in size.

        Example:
            >>> batch = VideoDecoder(video_path).get_frames_at([30, 31, 30])
            >>> batch.data.shape, batch.pts_s.tolist(), batch.stats.unique
            ((3, 64, 96, 3), [1.0, 1.0333333333333334, 1.0], 2)
        """
        return self._decode(self._frames_at(indices))

    def get_frames_played_at(self, seconds: Sequence[float] | npt.NDArray[np.number]) -> FrameBatch:
        """Decode frames by time, matched as `match` and `tolerance_s` of this decoder say.

        Args:
            seconds: Times in the video, in any order. A float32 array is allowed its own rounding error.

        Returns:
            The frames in the order of `seconds`.

        Raises:
            FrameOutOfRangeError: A time is farther outside the video than the tolerance, or not a number.
            FrameDecodeError: A frame's pictures are damaged.
            ShardFormatError: The frames differ in size.

        Example:
            >>> VideoDecoder(video_path).get_frames_played_at([0.01, 2.99]).pts_s.tolist()
            [0.0, 2.966666666666667]
        """
        times_s = np.asarray(seconds)
        if times_s.size == 0:
            times_s = times_s.astype(np.float64)
        if times_s.ndim != 1 or times_s.dtype.kind not in "fiu":
            raise TypeError(f"seconds must be a list of numbers, not {seconds!r:.80}")
        times, match, tolerance_s = self._opened.times, self._match, self._tolerance_s
        frames = times.resolve(0.0, times_s, match=match, tolerance_s=tolerance_s)
        missed = np.flatnonzero(frames == NO_FRAME)
        if missed.size:
            time_s = float(times_s[missed[0]])
            reason = times.explain_miss(time_s, match=match, tolerance_s=tolerance_s)
            raise FrameOutOfRangeError(f"{self._opened.name}: {reason}", shard=self._opened.name, time_s=time_s)
        return self._decode(frames)

    def plan_at(self, indices: Sequence[int] | npt.NDArray[np.integer]) -> DecodeStats:
        """What `get_frames_at` would take, without decoding.

        Args:
            indices: As for `get_frames_at`.

        Returns:
            The same counts; `fallbacks` is 0, because only decoding can tell.

        Example:
            >>> VideoDecoder(video_path).plan_at([0, 0, 1]).unique
            2
        """
        frames = self._frames_at(indices)
        with open_shards.use(self._opened) as shard:
            return DecodeStats.of(shard.plan(frames).stats)

    def close(self) -> None:
        """Give the file descriptor back; a later call takes it again."""
        open_shards.give_back(self._opened)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _frames_at(self, indices: Sequence[int] | npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        numbers = np.asarray(indices)
        if numbers.size == 0:
            numbers = numbers.astype(np.int64)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise TypeError(f"indices must be a list of whole numbers, not {indices!r:.80}")
        count = len(self)
        outside = np.flatnonzero((numbers < -count) | (numbers >= count))
        if outside.size:
            name = self._opened.name
            bounds = f"[0, {count}), negative ones down to {-count}"
            raise FrameOutOfRangeError(f"frame {numbers[outside[0]]} is outside {bounds}, in {name}", shard=name)
        frames = numbers.astype(np.int64)
        return np.where(frames < 0, frames + count, frames)

    def _decode(self, frames: npt.NDArray[np.int64]) -> FrameBatch:
        height, width = self._one_shape(frames)
        data = np.empty((frames.size, height, width, 3), np.uint8)
        with open_shards.use(self._opened) as shard:
            result = shard.decode(
                frames,
                data.reshape(-1),
                np.arange(frames.size, dtype=np.int64) * (height * width * 3),
                apply_rotation=self._apply_rotation,
                num_threads=self._num_threads,
            )
        stats = count_decode(result.stats)
        pts_s, duration_s = self._opened.pts_s[frames], self._opened.duration_s[frames]
        for position, kind, cause in result.errors:
            time_s = float(pts_s[position])
            where = f"frame {frames[position]} at {time_s:.6f} s of {self._opened.name}"
            raise kind(f"{where}: {cause}", shard=self._opened.name, time_s=time_s)
        return FrameBatch(data, pts_s, duration_s, stats)

    def _one_shape(self, frames: npt.NDArray[np.int64]) -> tuple[int, int]:
        of_which = frames if frames.size else np.zeros(1, np.int64)
        height, width = self._opened.frame_shapes(of_which, apply_rotation=self._apply_rotation)
        different = np.flatnonzero((height != height[0]) | (width != width[0]))
        if different.size:
            sizes = " and ".join(f"frame {frames[k]} ({width[k]}x{height[k]})" for k in (0, different[0]))
            raise ShardFormatError(
                f"{sizes} of {self._opened.name} differ in size: ask for frames of one size at a time, "
                "or use decode_frames, whose image column takes any",
                shard=self._opened.name,
            )
        return int(height[0]), int(width[0])


def _open_unshared(source: bytes | BinaryIO, name: str, index: str | None) -> OpenShard:
    return OpenShard.of(source, name=name, place=None if index is None else place_in(index, name))


def check_num_threads(num_threads: int | None) -> int:
    """Return `num_threads` for the core, where 0 means that the budget decides; raise ValueError below 1."""
    if num_threads is None:
        return 0
    if isinstance(num_threads, bool) or not isinstance(num_threads, (int, np.integer)):
        raise TypeError(f"num_threads must be a whole number or None, not {type(num_threads).__name__}")
    if num_threads < 1:
        raise ValueError(f"num_threads is {num_threads}; it must be at least 1, or None")
    return int(num_threads)
