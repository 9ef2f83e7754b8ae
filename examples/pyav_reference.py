# SPDX-License-Identifier: Apache-2.0
"""The same frames from PyAV, in order and with seeks: what the demo checks against and is timed beside."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import av
import numpy as np
import numpy.typing as npt
from av.container import InputContainer
from av.video.stream import VideoStream

Picture = npt.NDArray[np.uint8]
Moments = Mapping[str, Sequence[float]]
"""Seconds asked for, by the path of the shard."""


@dataclass(frozen=True)
class Work:
    """What one way to get the pictures took."""

    way: str
    pictures: int
    cpu_s: float


def decode_in_order(moments: Moments) -> tuple[dict[tuple[str, float], Picture], Work]:
    """Decode every shard from its first frame to its last, and keep the frame nearest to each time.

    Args:
        moments: Times in seconds by shard.

    Returns:
        RGB pictures by (shard, time), and what they took.

    """
    nearest: dict[tuple[str, float], Picture] = {}
    pictures = 0
    started = time.process_time()
    for shard, seconds in moments.items():
        waiting = sorted(set(seconds), reverse=True)
        with _open(shard) as file:
            before: av.VideoFrame | None = None
            for frame in file.decode(video=0):
                pictures += 1
                while waiting and _time_s(frame) > waiting[-1]:  # it lies between this frame and the one before
                    asked = waiting.pop()
                    later_is_near = before is None or _time_s(frame) - asked < asked - _time_s(before)
                    nearest[shard, asked] = _rgb(frame if later_is_near or before is None else before)
                before = frame
            if before is not None:
                nearest |= {(shard, asked): _rgb(before) for asked in waiting}
    return nearest, Work("PyAV, whole shards in order", pictures, time.process_time() - started)


def decode_with_seeks(moments: Moments) -> Work:
    """Decode the same frames as a careful user would: times sorted, and a seek where it skips to a later key frame.

    Args:
        moments: Times in seconds by shard.

    Returns:
        What they took.

    """
    pictures = 0
    started = time.process_time()
    for shard, seconds in moments.items():
        with _open(shard) as file:
            stream = file.streams.video[0]
            keys_s, half_s, tick_s = _key_times_s(stream), 0.5 / float(stream.average_rate or 30), _tick_s(stream)
            frames: Iterator[av.VideoFrame] = iter(())
            position_s = -np.inf
            for asked in sorted(set(seconds)):
                if keys_s[max(0, bisect_right(keys_s, asked + half_s) - 1)] > position_s + half_s:
                    file.seek(round(asked / tick_s), stream=stream)
                    frames, position_s = file.decode(stream), -np.inf
                while position_s < asked - half_s:
                    frame = next(frames, None)
                    if frame is None:
                        break
                    pictures += 1
                    position_s = _time_s(frame)
                if frame is not None:
                    _rgb(frame)
    return Work("PyAV, sorted seeks", pictures, time.process_time() - started)


def _open(shard: str) -> InputContainer:
    file = av.open(shard)
    file.streams.video[0].codec_context.thread_count = 1
    return file


def _key_times_s(stream: VideoStream) -> list[float]:
    entries = list(stream.index_entries)
    shift = (stream.start_time or 0) - entries[0].timestamp  # the index holds decode times
    return sorted((entry.timestamp + shift) * _tick_s(stream) for entry in entries if entry.is_keyframe)


def _tick_s(stream: VideoStream) -> float:
    return float(stream.time_base or 0)


def _time_s(frame: av.VideoFrame) -> float:
    if frame.time is None:
        raise ValueError("a frame without a time")
    return frame.time


def _rgb(frame: av.VideoFrame) -> Picture:
    return frame.to_ndarray(format="rgb24").astype(np.uint8, copy=False)
