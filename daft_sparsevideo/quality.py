# SPDX-License-Identifier: Apache-2.0
"""How near one video comes to another, and at which rate factor (crf) it comes as near as asked."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from av.video.reformatter import VideoReformatter

from daft_sparsevideo.errors import ShardFormatError
from daft_sparsevideo.source_video import Planes, SourceVideo, copied_planes, planes_of

IDENTICAL_DB = 100.0  # PSNR of frames that do not differ
MIN_CRF = {"hevc": 0.0, "h264": 1.0}  # below 1, x264 codes without loss, and then without B pictures
MAX_CRF = 51.0

_DB_PER_CRF = 0.45  # about, for the first step
_LEAST_DB_PER_CRF = 0.1

_MATCH_FRAMES = 65  # of the source, that are encoded again to learn what its own format and size can keep
_MATCH_CRF = {"libx264": (12, 18, 24, 30), "libx265": (12, 18, 24, 30), "libsvtav1": (10, 20, 30, 42)}
_MATCH_ENCODER = {"h264": "libx264", "hevc": "libx265", "av1": "libsvtav1"}


@dataclass(frozen=True)
class Quality:
    """PSNR in dB, at most 100, of the frames of one video against those of another.

    Attributes:
        psnr_db, worst_psnr_db: Of R, G and B: mean over the frames, and the worst frame's.
        y_psnr_db, worst_y_psnr_db: Of luma.
    """

    psnr_db: float
    worst_psnr_db: float
    y_psnr_db: float
    worst_y_psnr_db: float


def measure_quality(source: SourceVideo, written: SourceVideo) -> Quality:
    """Decode both, and compare them frame by frame.

    Raises:
        FrameDecodeError: A frame of one of them is damaged or missing.
    """
    rgb, other_rgb = VideoReformatter(), VideoReformatter()  # one each: they keep what belongs to a form of frames
    found = []
    for frame, other in zip(source.frames(), written.frames(), strict=True):
        rgb_db = psnr_of(_rgb_of(frame, rgb), _rgb_of(other, other_rgb), 255)
        y_db = psnr_of(planes_of(frame)[0], planes_of(other)[0], (1 << source.bit_depth) - 1)
        found.append((rgb_db, y_db))
    (rgb_mean, y_mean), (rgb_worst, y_worst) = np.mean(found, axis=0), np.min(found, axis=0)
    return Quality(float(rgb_mean), float(rgb_worst), float(y_mean), float(y_worst))


def psnr_of(one: npt.NDArray[Any], other: npt.NDArray[Any], peak: int) -> float:
    """PSNR of two arrays of one shape.

    >>> round(psnr_of(np.zeros((2, 2), np.uint8), np.full((2, 2), 16, np.uint8), 255), 2)
    24.05
    """
    difference = np.subtract(one, other, dtype=np.int32).astype(np.float32).ravel()
    mean = float(np.dot(difference, difference)) / difference.size
    return IDENTICAL_DB if mean == 0 else min(IDENTICAL_DB, 10 * math.log10(peak**2 / mean))


def planes_rgb(planes: Planes, like: SourceVideo, reformatter: VideoReformatter) -> npt.NDArray[np.uint8]:
    """R, G and B, [height, width, 3], of planes in the colours of a video."""
    return _rgb_of(frame_of(planes, like), reformatter)


def frame_of(planes: Planes, like: SourceVideo) -> Any:
    """A frame of PyAV with such planes, tagged as a video is."""
    frame = av.VideoFrame(like.width, like.height, "yuv420p10le" if like.bit_depth == 10 else "yuv420p")
    for plane, samples in zip(frame.planes, planes, strict=True):
        rows = np.zeros((plane.height, plane.line_size // samples.itemsize), samples.dtype)
        rows[:, : plane.width] = samples
        plane.update(rows.tobytes())
    frame.colorspace, frame.color_range = like.colour["color_space"], like.colour["color_range"]
    return frame


def search_crf(
    psnr_at: Callable[[float], float],
    target_db: float,
    first_crf: float,
    *,
    min_crf: float,
    tries: int,
    tolerance_db: float,
) -> float:
    """The largest crf of those tried whose PSNR is not below a target; the one with the best PSNR if all are.

    Args:
        psnr_at: Tells the PSNR in dB at a crf; falls as that rises.
        target_db: What is to be reached.
        first_crf: Where to begin.
        min_crf: The least that may be tried; the most is 51.
        tries: How many times to ask, at most.
        tolerance_db: How near is near enough.

    Returns:
        The crf, in steps of 0.01.
    """
    tried: dict[float, float] = {}
    crf = first_crf
    for _ in range(tries):
        crf = round(min(max(crf, min_crf), MAX_CRF), 2)
        if crf in tried:
            break
        tried[crf] = psnr_at(crf)
        if abs(tried[crf] - target_db) <= tolerance_db:
            break
        crf = _next_crf(tried, target_db)
    enough = [crf for crf, psnr in tried.items() if psnr >= target_db - tolerance_db]
    return max(enough) if enough else max(tried, key=tried.__getitem__)


def _next_crf(tried: dict[float, float], target_db: float) -> float:
    """Between the tries on both sides of the target, or on the line through the two that are nearest to it."""
    finer = max((crf for crf, psnr in tried.items() if psnr >= target_db), default=None)
    coarser = min((crf for crf, psnr in tried.items() if psnr < target_db), default=None)
    if finer is not None and coarser is not None and finer < coarser:
        share = (tried[finer] - target_db) / (tried[finer] - tried[coarser])
        share = min(max(share, 0.1), 0.9) if len(tried) < 4 else 0.5  # a curve that bends, or goes in steps, is halved
        return finer + share * (coarser - finer)
    nearest = sorted(tried, key=lambda crf: abs(tried[crf] - target_db))
    one, other = nearest[0], nearest[min(1, len(nearest) - 1)]
    slope = (tried[one] - tried[other]) / (other - one) if one != other else _DB_PER_CRF
    return one + (tried[one] - target_db) / max(slope, _LEAST_DB_PER_CRF)


def source_match_db(source: SourceVideo) -> float:
    """The RGB PSNR that encoding a source once more in its own format, at its own size, would give.

    Its first frames are encoded by the usual encoder of its codec at several rate factors, with its own distance of
    key frames, and PSNR is interpolated at the bytes that these frames take in the source.

    Raises:
        ShardFormatError: Its codec is none of H.264, HEVC and AV1.
    """
    encoder = _MATCH_ENCODER.get(source.codec)
    if encoder is None:
        raise ShardFormatError(
            f"{source.name} is {source.codec}: match_source knows h264, hevc and av1; give crf or psnr_db",
            shard=source.name,
        )
    count = min(_MATCH_FRAMES, source.num_frames)
    frames = [copied_planes(frame) for frame in islice(source.frames(), count)]
    keys = np.flatnonzero(source.is_key)
    key_distance = int(keys[1] - keys[0]) if keys.size > 1 else source.num_frames
    target_bytes = float(source.packet_bytes[:count].sum())
    points = [_encode_alike(source, frames, encoder, crf, key_distance) for crf in _MATCH_CRF[encoder]]
    log_bytes, quality_db = zip(*sorted(points), strict=True)
    return float(np.interp(math.log(target_bytes), log_bytes, quality_db))


def _encode_alike(
    source: SourceVideo, frames: list[Planes], encoder: str, crf: int, key_distance: int
) -> tuple[float, float]:
    """The logarithm of bytes, and the mean RGB PSNR."""
    codec: Any = av.CodecContext.create(encoder, "w")
    codec.width, codec.height = source.width, source.height
    codec.pix_fmt = "yuv420p10le" if source.bit_depth == 10 else "yuv420p"
    codec.time_base = Fraction(1, 30)
    codec.flags |= av.codec.context.Flags.global_header  # as in files: x265 tells of itself there in 2 kB
    codec.options = {"crf": str(crf), "g": str(key_distance)}
    if encoder == "libsvtav1":
        codec.options |= {"preset": "10"}
        os.environ.setdefault("SVT_LOG", "1")  # errors alone: it knows no other way to be told
    if encoder == "libx265":
        codec.options |= {"x265-params": "log-level=none"}
    originals = [frame_of(planes, source) for planes in frames]
    packets = []
    for number, frame in enumerate(originals):
        frame.pts = number
        packets += codec.encode(frame)
    packets += codec.encode(None)
    decoder: Any = av.CodecContext.create("libdav1d" if encoder == "libsvtav1" else source.codec, "r")
    decoder.extradata = codec.extradata
    decoded = [frame for packet in [*packets, None] for frame in decoder.decode(packet)]
    rgb, other_rgb = VideoReformatter(), VideoReformatter()
    quality = [
        psnr_of(_rgb_of(one, rgb), _rgb_of(other, other_rgb), 255)
        for one, other in zip(originals, decoded, strict=True)
    ]
    return math.log(sum(packet.size for packet in packets)), float(np.mean(quality))


def _rgb_of(frame: Any, reformatter: VideoReformatter) -> npt.NDArray[np.uint8]:
    rgb: Any = reformatter.reformat(frame, format="rgb24")
    plane = rgb.planes[0]
    return np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)[:, : plane.width * 3]
