# SPDX-License-Identifier: Apache-2.0
"""Types of pictures that keep every closure short: the structure of a DDRA shard."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from itertools import pairwise
from types import ModuleType
from typing import Literal

Closure = Literal[3, 4]
"""Pictures that a frame takes at most."""

MAX_INTERVAL = 64
"""Frames from one anchor to the next: as many B pictures as the encoders take, and the anchor."""


def ddra_frame_types(
    num_frames: int,
    interval: int | Sequence[tuple[int, int]],
    *,
    cuts: Iterable[int] = (),
    closure: Closure = 3,
    closed: bool = False,
) -> str:
    """The type of every frame of an episode, for `_encoder.ShardWriter.encode_episode`.

    An anchor stands at every `interval` frames, and at every cut. The B pictures between two anchors refer to these
    two alone. After the last anchor, the last frame is a P, which refers to that anchor.

    Args:
        num_frames: Frames of the episode, at least 1.
        interval: Frames from one anchor to the next, at least 1; or the first frame and the interval of every
            section, the first of which begins with frame 0. A section begins with an anchor.
        cuts: Frames that are anchors too; the next one is an interval after it.
        closure: Pictures that any frame takes at most, itself included. With 4, the middle one of two or more B
            pictures is a reference of the others: a smaller file.
        closed: Every interval starts anew: its last frame is a P, and nothing refers across. Larger, but plain
            decoders can start at every anchor.

    Returns:
        One letter a frame, in presentation order: I starts anew, i is an anchor, P refers to the anchor before it,
        B is a B picture that others refer to, b one that none does.

    Raises:
        ValueError: `num_frames` or `interval` is below 1, or `closure` is neither 3 nor 4.

    Example:
        >>> ddra_frame_types(11, 4)
        'IbbbibbbibP'
        >>> ddra_frame_types(11, 4, closed=True)
        'IbbPIbbPIbP'
        >>> ddra_frame_types(11, 4, closure=4, cuts=[6])
        'IbBbibibBbi'
        >>> ddra_frame_types(11, [(0, 2), (4, 6)])
        'Ibibibbbbbi'
    """
    sections = dict([(0, interval)] if isinstance(interval, int) else interval)
    if num_frames < 1 or 0 not in sections or min(sections.values()) < 1:
        raise ValueError(f"num_frames is {num_frames} and interval {interval}; both must be at least 1")
    if closure not in {3, 4}:
        raise ValueError(f"closure is {closure}; it must be 3 or 4")
    starts = sorted(start for start in {*sections, *cuts} if 0 <= start < num_frames)
    anchors: list[int] = []
    for start, stop in pairwise([*starts, num_frames]):
        step = sections[max(first for first in sections if first <= start)]
        anchors += range(start, stop, step)
    types = ""
    for anchor, after in pairwise([*anchors, num_frames]):
        is_last = closed or after == num_frames  # the anchor after it is none for these B pictures
        between = after - anchor - 1 - is_last
        types += "I" if closed or anchor == 0 else "i"
        types += _b_pictures(between, closure) if between > 0 else ""
        types += "P" if is_last and after - anchor > 1 else ""
    return types


def encoder_module() -> ModuleType:
    """The compiled module `_encoder`, which is GPL and may have been left out.

    Its `ShardWriter` encodes one episode after the other into an MP4 file, which is removed again unless it is closed.

    Raises:
        ImportError: It was.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> grey = [np.full(shape, 128, np.uint8) for shape in ((48, 64), (24, 32), (24, 32))]  # Y, Cb and Cr
        >>> folder = tempfile.mkdtemp()
        >>> encoder = encoder_module()
        >>> settings = encoder.EncoderSettings(codec="hevc", width=64, height=48, crf=20.0)
        >>> writer = encoder.ShardWriter(f"{folder}/shard.mp4", settings, time_base=(1, 30))
        >>> nbytes = writer.encode_episode([grey] * 9, np.arange(9), ddra_frame_types(9, 4))
        >>> writer.close()
    """
    try:
        return import_module("daft_sparsevideo._encoder")
    except ModuleNotFoundError as error:
        raise ImportError(
            "this installation of daft_sparsevideo cannot encode: its GPL module _encoder was left out by "
            "SPARSEVIDEO_ENCODER=OFF. Install it again without that setting."
        ) from error


def _b_pictures(count: int, closure: int) -> str:
    """B pictures between two anchors; with `closure` 4 the encoders take no two of them without a reference."""
    if closure == 3 or count < 2:
        return "b" * count
    middle = count // 2
    return "b" * middle + "B" + "b" * (count - middle - 1)
