# SPDX-License-Identifier: Apache-2.0
"""The project's decoder and its peers behind one small interface, each used as its own experts would."""

from __future__ import annotations

import bisect
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

Frames = npt.NDArray[np.uint8]
"""RGB frames, uint8 [N, height, width, 3], in the order asked for."""


class FrameReader(Protocol):
    """One opened shard."""

    def frames_at(self, frames: Sequence[int]) -> Frames:
        """Decode frames by their number in the shard, which ascend and are none twice."""

    def close(self) -> None:
        """Give everything back."""


class SparseVideoReader:
    """`daft_sparsevideo.VideoDecoder`: the project without Daft."""

    def __init__(self, shard: Path, *, fps: float, num_threads: int) -> None:
        """Open a shard; `fps` is not needed, since the shard's index knows its frames."""
        del fps
        self._decoder: Any = import_module("daft_sparsevideo").VideoDecoder(str(shard), num_threads=num_threads)

    def frames_at(self, frames: Sequence[int]) -> Frames:
        """Decode frames by number."""
        data: Frames = self._decoder.get_frames_at(frames).data
        return data

    def close(self) -> None:
        """Let go of the shard."""
        del self._decoder


class PyAvReader:
    """PyAV by hand: targets in order, one pass forward, a seek only where a key frame lies between."""

    def __init__(self, shard: Path, *, fps: float, num_threads: int) -> None:
        """Open a shard and read its key frames from the container's index."""
        self._num_threads = num_threads
        self._container: Any = import_module("av").open(str(shard))
        self._stream: Any = self._container.streams.video[0]
        codec = self._stream.codec_context
        codec.thread_type = "NONE" if num_threads == 1 else "AUTO"
        codec.thread_count = num_threads
        self._size = (codec.height, codec.width)
        self._ticks_per_frame = 1 / (fps * float(self._stream.time_base))
        self._key_pts = self._read_key_pts()

    def _read_key_pts(self) -> list[int]:
        # The index holds decode times: unshifted, a target just before a key frame would be sought from that one.
        entries = list(self._stream.index_entries)
        shift = (self._stream.start_time or 0) - entries[0].timestamp
        return sorted(entry.timestamp + shift for entry in entries if entry.is_keyframe)

    def frames_at(self, frames: Sequence[int]) -> Frames:
        """Decode frames by number, told apart by their presentation time."""
        rgb = np.empty((len(frames), *self._size, 3), np.uint8)
        half_a_frame = self._ticks_per_frame / 2
        reached: float | None = None
        decoded: Any = iter(())
        for row, frame in enumerate(frames):
            pts = round(frame * self._ticks_per_frame)
            key_pts = self._key_pts[max(0, bisect.bisect_right(self._key_pts, pts) - 1)]
            if reached is None or key_pts > reached + half_a_frame:
                self._container.seek(pts, stream=self._stream)
                decoded = self._container.decode(self._stream)
            for picture in decoded:
                reached = picture.pts
                if picture.pts >= pts - half_a_frame:
                    # By default the colour conversion starts a thread pool for every frame: 0.5 ms of a 640x480 one.
                    rgb[row] = picture.to_ndarray(format="rgb24", threads=self._num_threads)
                    break
            else:
                raise LookupError(f"frame {frame} was not reached in {self._container.name}")
        return rgb

    def close(self) -> None:
        """Close the container."""
        self._container.close()


class TorchCodecReader:
    """TorchCodec's `VideoDecoder` in one of its two seek modes."""

    def __init__(self, shard: Path, *, fps: float, num_threads: int, seek_mode: str) -> None:
        """Open a shard; "exact" scans its packets, "approximate" trusts the header."""
        del fps
        self._decoder: Any = import_module("torchcodec.decoders").VideoDecoder(
            str(shard), seek_mode=seek_mode, num_ffmpeg_threads=num_threads, dimension_order="NHWC"
        )

    def frames_at(self, frames: Sequence[int]) -> Frames:
        """Decode frames by number."""
        data: Frames = self._decoder.get_frames_at(list(frames)).data.numpy()
        return data

    def close(self) -> None:
        """Let go of the shard."""
        del self._decoder


class DecordReader:
    """decord's `VideoReader`."""

    def __init__(self, shard: Path, *, fps: float, num_threads: int) -> None:
        """Open a shard; decord scans its packets."""
        del fps
        decord = import_module("decord")
        self._reader: Any = decord.VideoReader(str(shard), ctx=decord.cpu(0), num_threads=num_threads)

    def frames_at(self, frames: Sequence[int]) -> Frames:
        """Decode frames by number."""
        data: Frames = self._reader.get_batch(list(frames)).asnumpy()
        return data

    def close(self) -> None:
        """Let go of the shard."""
        del self._reader


PROJECT = "VideoDecoder"
PYAV = "PyAV"
TORCHCODEC_EXACT = "TorchCodec exact"
TORCHCODEC_APPROXIMATE = "TorchCodec approximate"

READERS: dict[str, Callable[..., FrameReader]] = {
    PROJECT: SparseVideoReader,
    PYAV: PyAvReader,
    TORCHCODEC_EXACT: partial(TorchCodecReader, seek_mode="exact"),
    TORCHCODEC_APPROXIMATE: partial(TorchCodecReader, seek_mode="approximate"),
    "decord": DecordReader,
}
"""Every reader is called as `reader(shard, fps=fps, num_threads=num_threads)`."""


def forget_shards() -> None:
    """Make the project forget every shard it has opened in this process, and so their indexes."""
    import_module("daft_sparsevideo.open_shards").open_shards.clear()


def remember_shards(shards: Iterable[Path]) -> None:
    """Make the project open shards, so that this process knows their indexes."""
    for shard in shards:
        import_module("daft_sparsevideo").VideoDecoder(str(shard))
