# SPDX-License-Identifier: Apache-2.0
"""Drawn pictures for the made streams: nothing here knows of codecs."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]
Scene = Literal["mixed", "steady", "cuts", "fades", "still"]
Fields = Literal["", "tff", "bff"]


@functools.cache
def _texture(seed: int, height: int, width: int) -> npt.NDArray[np.float32]:
    """Smooth noise that motion search can follow: random blocks, twice averaged."""
    coarse = np.random.default_rng(seed).random((height // 4 + 2, width // 4 + 2, 3), dtype=np.float32)
    fine: npt.NDArray[np.floating] = coarse.repeat(4, axis=0).repeat(4, axis=1)[:height, :width]
    for axis in (0, 1):
        fine = (fine + np.roll(fine, 1, axis) + np.roll(fine, 2, axis)) / 3
    return fine.astype(np.float32)


def draw(scene: Scene, moment: float, width: int, height: int) -> Picture:
    """One RGB picture of a scene at `moment` (in frames): pan, zoom-free shapes, sensor noise, and cuts or fades."""
    part, gain = 0, 1.0
    if scene == "cuts":
        part = int(moment) // 13
    elif scene == "mixed":
        part = int(moment) // 37
    if scene in ("fades", "mixed"):
        gain = 0.2 + 0.8 * abs(((moment / 24.0) % 2.0) - 1.0)
    if scene == "still":
        moment = moment / 16
    texture = _texture(part, height, width)
    shift = round(moment * 1.5)
    picture = 0.55 * np.roll(texture, (shift // 3, shift), (0, 1))
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    wave = 0.25 + 0.2 * np.sin((x + 2 * moment) / 17.0 + part) * np.cos((y - moment) / 13.0)
    picture = picture + wave[..., None] * np.array([1.0, 0.6, 0.3 + 0.1 * part], np.float32)
    for k in range(3):
        angle = moment * (0.05 + 0.03 * k) + 2 * k + part
        cx, cy = width * (0.5 + 0.35 * np.cos(angle)), height * (0.5 + 0.35 * np.sin(1.3 * angle))
        radius = height * (0.1 + 0.04 * k)
        inside = np.maximum(abs(x - cx), abs(y - cy)) < radius if k % 2 else np.hypot(x - cx, y - cy) < radius
        picture[inside] = np.roll([0.95, 0.15 * k, 0.4], k)
    noise = np.random.default_rng(round(moment * 4)).normal(0, 0.012, (height, width, 1))
    drawn: Picture = (np.clip(picture * gain + noise, 0, 1) * 255).astype(np.uint8)
    return drawn


def draw_scene(scene: Scene, frames: int, width: int, height: int, fields: Fields = "") -> Iterator[Picture]:
    """`frames` pictures; with `fields`, the two fields of each are half a frame interval apart."""
    for i in range(frames):
        picture = draw(scene, i, width, height)
        if fields:
            late = 1 if fields == "tff" else 0
            picture[late::2] = draw(scene, i + 0.5, width, height)[late::2]
        yield picture


def solid(color: tuple[int, int, int], frames: int, width: int = 96, height: int = 64) -> Iterator[Picture]:
    """Pictures of one colour with a marker that moves, so that no two are alike."""
    for i in range(frames):
        picture = np.full((height, width, 3), color, np.uint8)
        picture[4:10, 4 + 2 * (i % 40) : 10 + 2 * (i % 40)] = 255 - np.array(color, np.uint8)
        yield picture


def numbered(number: int, width: int = 96, height: int = 64) -> Picture:
    """A picture that carries its number as 16 blocks of black or white in its upper half (see `number_of`)."""
    picture = np.full((height, width, 3), 96, np.uint8)
    block = width // 8
    for bit in range(16):
        row, column = divmod(bit, 8)
        picture[row * 16 : row * 16 + 16, column * block : (column + 1) * block] = 235 if number >> bit & 1 else 20
    return picture


def number_of(picture: npt.NDArray[np.uint8]) -> int:
    """The number that `numbered` drew: it survives any sensible encoding."""
    block = picture.shape[1] // 8
    bits = 0
    for bit in range(16):
        row, column = divmod(bit, 8)
        patch = picture[row * 16 + 4 : row * 16 + 12, column * block + 3 : (column + 1) * block - 3]
        bits |= int(patch.mean() > 127) << bit
    return bits
