# SPDX-License-Identifier: Apache-2.0
"""Frames in memory that encoders are measured by, and what a coded file makes of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from pathlib import Path

Planes = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], npt.NDArray[np.uint8]]
"""Y, Cb and Cr of a 4:2:0 frame."""


@dataclass(frozen=True)
class Clip:
    """Some frames of a video in a row, 8-bit 4:2:0."""

    name: str
    path: Path
    """The file that holds them, and maybe others."""
    frames: list[npt.NDArray[np.uint8]]
    """Y, Cb and Cr below one another, as PyAV has them: [height * 3 / 2, width]."""
    rgb: list[npt.NDArray[np.uint8]]
    """What PyAV makes of them with `rgb24`: [height, width, 3]."""

    @property
    def width(self) -> int:
        """Pixels."""
        return int(self.frames[0].shape[1])

    @property
    def height(self) -> int:
        """Pixels."""
        return int(self.frames[0].shape[0]) * 2 // 3

    def planes(self) -> list[Planes]:
        """Give the planes of every frame, in the memory of the clip."""
        size = self.width * self.height
        half = (self.height // 2, self.width // 2)
        flat = [frame.reshape(-1) for frame in self.frames]
        return [
            (
                samples[:size].reshape(self.height, self.width),
                samples[size : size * 5 // 4].reshape(half),
                samples[size * 5 // 4 :].reshape(half),
            )
            for samples in flat
        ]


@dataclass(frozen=True)
class Coded:
    """A clip as one encoder coded it."""

    size_bytes: int
    """Of its packets and parameter sets; what the container adds is left out."""
    psnr_db: float
    """Of R, G and B: the mean over the frames of each frame's PSNR."""


def read_clip(path: Path, first: int = 0, stop: int | None = None) -> Clip:
    """Decode frames of a video with PyAV.

    Args:
        path: The video.
        first: The first frame that is taken.
        stop: The frame behind the last one; None: all.

    Returns:
        The frames.

    Raises:
        ValueError: They are not 8-bit 4:2:0.

    """
    frames, rgb = [], []
    with import_module("av").open(str(path)) as container:
        for frame in islice(container.decode(video=0), first, stop):
            if frame.format.name != "yuv420p":
                raise ValueError(f"{path} is {frame.format.name}; only yuv420p is measured")
            frames.append(frame.to_ndarray())
            rgb.append(_rgb(frame))
    return Clip(path.stem, path, frames, rgb)


def measure_coded(path: Path, clip: Clip) -> Coded:
    """Compare the first frames of a coded file with a clip.

    Args:
        path: A video, in which frame 0 is the clip's first; frames behind the clip's last do not count.
        clip: What was encoded.

    Returns:
        Bytes and PSNR.

    Raises:
        ValueError: The file has fewer frames than the clip.

    """
    count = len(clip.frames)
    with import_module("av").open(str(path)) as container:
        video = container.streams.video[0]
        packets = sorted((packet.pts, packet.size) for packet in container.demux(video) if packet.size)
        size_bytes = sum(size for _, size in packets[:count]) + len(video.codec_context.extradata or b"")
        container.seek(0)
        found = [
            _psnr_db(right, _rgb(frame)) for right, frame in zip(clip.rgb, container.decode(video=0), strict=False)
        ]
    if len(found) != count:
        raise ValueError(f"{path} has {len(found)} frames instead of {count}")
    return Coded(size_bytes, float(np.mean(found)))


def _rgb(frame: Any) -> npt.NDArray[np.uint8]:
    rgb: npt.NDArray[np.uint8] = frame.to_ndarray(format="rgb24", threads=1)
    return rgb


def _psnr_db(one: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8]) -> float:
    difference = np.subtract(one, other, dtype=np.float32).ravel()
    return 10 * math.log10(255**2 / max(float(np.dot(difference, difference)) / difference.size, 1e-6))
