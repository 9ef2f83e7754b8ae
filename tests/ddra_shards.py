# SPDX-License-Identifier: Apache-2.0
"""Small DDRA shards and what their closures are, by the decoder's own graph."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest

from daft_sparsevideo import _core
from scenes import draw

_encoder = pytest.importorskip("daft_sparsevideo._encoder", reason="built without the encoder")

WIDTH, HEIGHT = 64, 48
TICKS = 512  # a frame, in a time base of 1/15360 s
Planes = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]


@functools.cache
def planes(number: int, bit_depth: int = 8, width: int = WIDTH, height: int = HEIGHT) -> Planes:
    """The planes of one drawn picture."""
    picture = np.ascontiguousarray(draw("mixed", number, width, height))
    pix_fmt = "yuv420p" if bit_depth == 8 else "yuv420p10le"
    return planes_of(av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format=pix_fmt))


def planes_of(frame: Any) -> Planes:
    """The planes of a frame of PyAV, without padding."""
    dtype = np.uint8 if frame.format.name == "yuv420p" else np.uint16
    y, u, v = (np.frombuffer(plane, dtype).reshape(plane.height, -1)[:, : plane.width].copy() for plane in frame.planes)
    return y, u, v


@dataclass(frozen=True)
class Episode:
    """What was asked of an encoder: the types and times of an episode's frames."""

    types: str
    pts: Sequence[int]

    def frames(self, bit_depth: int = 8) -> Iterable[Planes]:
        return (planes(number, bit_depth) for number in range(len(self.types)))


def evenly(all_types: Iterable[str]) -> list[Episode]:
    """Episodes one after the other, a frame every TICKS."""
    episodes, start = [], 0
    for types in all_types:
        stop = start + len(types)
        episodes.append(Episode(types, range(start * TICKS, stop * TICKS, TICKS)))
        start = stop
    return episodes


def open_writer(path: Path, codec: str, **settings: Any) -> Any:
    """A writer of small pictures; the quickest preset, since structure doesn't depend on it."""
    chosen = {"width": WIDTH, "height": HEIGHT, "preset": "ultrafast"}
    if "qp" not in settings:
        chosen["crf"] = 20.0
    container = {name: settings.pop(name) for name in ("rotation", "fragmented") if name in settings}
    time_base = settings.pop("time_base", (1, 15360))
    encoder_settings = _encoder.EncoderSettings(codec=codec, **(chosen | settings))
    return _encoder.ShardWriter(str(path), encoder_settings, time_base=time_base, **container)


def write_shard(path: Path, codec: str, episodes: Iterable[Episode], **settings: Any) -> Path:
    """Encode drawn pictures into a shard."""
    writer = open_writer(path, codec, **settings)
    for episode in episodes:
        pts = np.array(episode.pts, np.int64)
        assert writer.encode_episode(episode.frames(settings.get("bit_depth", 8)), pts, episode.types) > 0
    writer.close()
    return path


@dataclass(frozen=True)
class Graph:
    """What the frames of a shard refer to, by number in presentation order."""

    pts: list[int]
    dts: list[int]
    references: list[set[int]]

    @classmethod
    def of(cls, path: Path) -> Graph:
        index = _core.Shard(str(path)).index
        assert index.has_graph, index.fallback_reason
        frame_of = {int(picture): frame for frame, picture in enumerate(index.frame_picture)}
        assert len(frame_of) == index.num_pictures == index.num_frames
        lists = np.split(index.references, index.reference_offsets[1:-1])
        references = [{frame_of[int(picture)] for picture in lists[picture]} for picture in index.frame_picture]
        return cls(index.frame_pts.tolist(), index.picture_dts.tolist(), references)

    def closure(self, frame: int) -> set[int]:
        """The frame and all that it depends on."""
        found, todo = {frame}, [frame]
        while todo:
            new = self.references[todo.pop()] - found
            found |= new
            todo += new
        return found
