# SPDX-License-Identifier: Apache-2.0
"""Encoding of drawn pictures with PyAV's own encoders, for the tests' inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import av
import av.video.frame
import numpy as np

from scenes import Picture

PICTURE_TYPES = {
    "I": av.video.frame.PictureType.I,
    "P": av.video.frame.PictureType.P,
    "B": av.video.frame.PictureType.B,
}
PRIVATE_OPTION = {"libx264": "x264-params", "libx265": "x265-params", "libsvtav1": "svtav1-params"}
MUXER = {"mkv": "matroska", "ts": "mpegts"}  # where its name is not the suffix


def encode(
    path: Path,
    pictures: Iterable[Picture],
    *,
    codec: str = "libx264",
    params: str = "",
    options: Mapping[str, str] | None = None,
    pix_fmt: str = "yuv420p",
    rate: Fraction | int = 30,
    pts: Sequence[int] | None = None,
    time_base: Fraction | None = None,
    container: str = "",
    container_options: Mapping[str, str] | None = None,
    picture_types: str = "",
    dts_shift: int = 0,
    extra_streams: Literal["", "audio_first"] = "",
) -> Path:
    """Encode RGB pictures into one file; deterministic (one thread).

    Args:
        params: the encoder's own `key=value:key=value` list.
        pts: one presentation time a picture, in ticks of `time_base`; default 0, 1, 2, ... at `rate`.
        picture_types: force picture i to the i-th letter (I, P or B), "." leaves the choice to the encoder.
        dts_shift: ticks taken from every dts, for encoders whose dts run late.
    """
    chosen = dict(options or {})
    if params:
        chosen[PRIVATE_OPTION[codec]] = params
    suffix = container or path.suffix.lstrip(".")
    muxer = MUXER.get(suffix, suffix)
    with av.open(str(path), "w", format=muxer, options=dict(container_options or {})) as file:
        audio = file.add_stream("aac", rate=48000) if extra_streams == "audio_first" else None
        stream: Any = file.add_stream(codec, rate=rate, options=chosen)
        stream.pix_fmt = pix_fmt
        stream.codec_context.thread_count = 1
        stream.codec_context.time_base = time_base or 1 / Fraction(rate)
        for i, picture in enumerate(pictures):
            if i == 0:
                stream.height, stream.width = picture.shape[:2]
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), "rgb24").reformat(format=pix_fmt)
            frame.pts = i if pts is None else pts[i]
            frame.time_base = time_base or 1 / Fraction(rate)
            if picture_types[i : i + 1] not in ("", "."):
                frame.pict_type = PICTURE_TYPES[picture_types[i]]
            _mux(file, stream.encode(frame), dts_shift)
        _mux(file, stream.encode(None), dts_shift)
        if audio is not None:
            silence = av.AudioFrame.from_ndarray(np.zeros((2, 1024), np.float32), "fltp", "stereo")
            silence.sample_rate, silence.pts = 48000, 0
            file.mux(audio.encode(silence))
            file.mux(audio.encode(None))
    return path


def _mux(file: Any, packets: Iterable[Any], dts_shift: int) -> None:
    for packet in packets:
        if dts_shift:
            packet.dts -= dts_shift
        file.mux(packet)
