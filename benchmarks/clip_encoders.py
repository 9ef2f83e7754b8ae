# SPDX-License-Identifier: Apache-2.0
"""The encoders that are compared: the project's, the paper's setting, and what PyAV's libraries do as they are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.clips import Clip

FPS = 30
PAPER_INTERVAL = 32  # an I, and 31 B pictures
X265_ONE_THREAD = "log-level=none:pools=none:frame-threads=1"

LEROBOT_AV1 = "SVT-AV1 g=2 preset 12 (LeRobot)"
DDRA_HEVC = "DDRA HEVC"
DDRA_HEVC_4 = "DDRA HEVC, closure 4"
PAPER_HEVC = "HEVC as in the paper"
DDRA_H264 = "DDRA H.264"
PAPER_H264 = "H.264 as in the paper"
PLAIN_X265 = "libx265 medium"
AV1_PYRAMID = "SVT-AV1 g=16 preset 8"

LEROBOT_CRF = 30


@dataclass(frozen=True)
class ClipEncoder:
    """One contestant: called as `encode(clip, output, crf)`, it writes an MP4 file and tells of its structure."""

    encode: Callable[[Clip, Path, float], str]
    first_crf: float
    """Where a search for the quality of LeRobot's default may begin."""
    step: float = 3
    greatest_crf: float = 51


def svt_options(gop: int, preset: int, crf: float) -> dict[str, str]:
    """Options of SVT-AV1."""
    os.environ.setdefault("SVT_LOG", "1")  # errors alone: it knows no other way to be told
    return {"g": str(gop), "preset": str(preset), "crf": str(round(crf))}


def x265_options(crf: float) -> dict[str, str]:
    """Options of libx265 as it is, on one thread."""
    return {"preset": "medium", "crf": str(crf), "x265-params": X265_ONE_THREAD}


def encode_with_pyav(clip: Clip, output: Path, encoder: str, options: Mapping[str, str]) -> None:
    """Encode a clip with PyAV, on one thread where the library lets it.

    Args:
        clip: What is encoded.
        output: An MP4 file.
        encoder: FFmpeg's name of the library.
        options: Its options.

    """
    av = import_module("av")
    with av.open(str(output), "w") as container:
        stream = container.add_stream(encoder, rate=FPS, options=dict(options))
        stream.width, stream.height, stream.pix_fmt = clip.width, clip.height, "yuv420p"
        stream.codec_context.thread_count = 1
        for number, samples in enumerate(clip.frames):
            frame = av.VideoFrame.from_ndarray(samples, format="yuv420p")
            frame.pts, frame.time_base = number, Fraction(1, FPS)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def _pyav(clip: Clip, output: Path, crf: float, *, encoder: str, options: Callable[[float], dict[str, str]]) -> str:
    encode_with_pyav(clip, output, encoder, options(crf))
    return ""


def reencoded(
    source: Path, output: Path, *, episodes: Sequence[float] | None = None, **settings: Any
) -> dict[str, Any]:
    """Encode a whole shard by a query with `reencode_ddra`, on one thread.

    Args:
        source: The shard.
        output: The new one.
        episodes: Seconds where each episode begins; None: one episode.
        settings: Other options of `reencode_ddra`.

    Returns:
        Its report.

    """
    daft, project = import_module("daft"), import_module("daft_sparsevideo")
    report = project.reencode_ddra(daft.col("shard"), output=str(output), episodes=episodes, num_threads=1, **settings)
    row: dict[str, Any] = daft.from_pydict({"shard": [str(source)]}).select(report).to_pydict()["reencoded"][0]
    return row


def _ddra(clip: Clip, output: Path, crf: float, *, codec: str, closure: int = 3) -> str:
    report = reencoded(clip.path, output, codec=codec, closure=closure, crf=crf)
    assert report["frames"] == len(clip.frames)
    assert report["closure_max"] <= closure
    return "interval " + ", ".join(str(section["interval"]) for section in report["intervals"])


def write_types(clip: Clip, output: Path, crf: float, types: str, *, codec: str = "hevc", tune: str = "psnr") -> None:
    """Encode a clip with the type of every picture given, on one thread.

    Args:
        clip: What is encoded.
        output: An MP4 file.
        crf: Rate factor.
        types: One letter a frame, see `daft_sparsevideo.ddra`.
        codec: "hevc" or "h264".
        tune: Of x265 or x264; empty: none.

    """
    encoder = import_module("daft_sparsevideo.ddra").encoder_module()
    settings = encoder.EncoderSettings(
        codec=codec, width=clip.width, height=clip.height, tune=tune, crf=crf, reference_b="B" in types
    )
    writer = encoder.ShardWriter(str(output), settings, time_base=(1, FPS))
    writer.encode_episode(clip.planes(), np.arange(len(clip.frames)), types)
    writer.close()


def _paper(clip: Clip, output: Path, crf: float, *, codec: str) -> str:
    types = import_module("daft_sparsevideo.ddra").ddra_frame_types(len(clip.frames), PAPER_INTERVAL)
    write_types(clip, output, crf, types, codec=codec, tune="")
    return f"interval {PAPER_INTERVAL}"


REFERENCE = ClipEncoder(partial(_pyav, encoder="libsvtav1", options=partial(svt_options, 2, 12)), LEROBOT_CRF)
"""What LeRobot does by default; the other encoders are compared at its quality."""

CLIP_ENCODERS: dict[str, ClipEncoder] = {
    DDRA_HEVC: ClipEncoder(partial(_ddra, codec="hevc"), 19),
    DDRA_HEVC_4: ClipEncoder(partial(_ddra, codec="hevc", closure=4), 19),
    PAPER_HEVC: ClipEncoder(partial(_paper, codec="hevc"), 19),
    DDRA_H264: ClipEncoder(partial(_ddra, codec="h264"), 21),
    PAPER_H264: ClipEncoder(partial(_paper, codec="h264"), 19),
    PLAIN_X265: ClipEncoder(partial(_pyav, encoder="libx265", options=x265_options), 19),
    AV1_PYRAMID: ClipEncoder(
        partial(_pyav, encoder="libsvtav1", options=partial(svt_options, 16, 8)), 25, step=5, greatest_crf=63
    ),
}
