# SPDX-License-Identifier: Apache-2.0
"""Small videos for the tests of the Python layer, with the frames that PyAV sees in them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from encoding import encode
from oracle import decode_sequentially, rgb_of
from scenes import draw_scene

CLOCKWISE = {0: (1, 0, 0, 1), 90: (0, 1, -1, 0), 180: (-1, 0, 0, -1), 270: (0, -1, 1, 0)}


@dataclass(frozen=True, eq=False)
class Clip:
    """A file, and each of its frames as PyAV's sequential decode gives it."""

    path: Path
    frames: list[npt.NDArray[np.uint8]]
    fps: float

    @property
    def name(self) -> str:
        return str(self.path)


def make_clip(
    path: Path,
    *,
    frames: int = 60,
    size: tuple[int, int] = (96, 64),
    rate: int = 30,
    params: str = "keyint=24:bframes=3",
) -> Clip:
    """Encode a drawn scene with x264; `size` is width and height."""
    encode(path, draw_scene("mixed", frames, *size), params=params, rate=Fraction(rate))
    return Clip(path, [rgb_of(frame) for frame in decode_sequentially(path)], rate)


def make_clip_of_two_sizes(path: Path) -> list[npt.NDArray[np.uint8]]:
    """Write an elementary stream whose 12 frames are 96x64 first, then 64x48."""
    parts = [
        encode(path.with_suffix(f".{width}.h264"), draw_scene("mixed", 6, width, height), params="keyint=6")
        for width, height in ((96, 64), (64, 48))
    ]
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    return [rgb_of(frame) for frame in decode_sequentially(path)]


def rotate(clip: Clip, path: Path, degrees: int) -> Path:
    """Copy an MP4 and ask players to turn it clockwise: the matrix of its track header (ISO/IEC 14496-12, 8.3.2)."""
    data = bytearray(clip.path.read_bytes())
    header = data.index(b"tkhd") + 4
    matrix = header + 40  # version 0: 4 bytes of flags, 20 of times and id, 16 of layer and volume
    a, b, c, d = (value << 16 for value in CLOCKWISE[degrees])
    data[matrix : matrix + 36] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    path.write_bytes(data)
    return path
