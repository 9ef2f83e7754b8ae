# SPDX-License-Identifier: Apache-2.0
"""CPU time of encoding a clip on one thread: DDRA HEVC beside libx265 as it is."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from benchmarks.clip_encoders import encode_with_pyav, reencoded, write_types, x265_options
from benchmarks.cpu_clock import Cost, interleaved, measured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.clips import Clip

ENCODER = "DDRA HEVC, the encoder alone"
PIPELINE = "reencode_ddra: interval, encode, gate, PSNR"
PLAIN = "libx265 medium by PyAV"


@dataclass
class ChoiceClock:
    """CPU seconds that choosing intervals took, decoding the frames for it included."""

    cpu_s: float = 0


@contextmanager
def timed_choices() -> Iterator[ChoiceClock]:
    """Measure the choice of intervals while reencode_ddra runs in this process, one shard at a time."""
    chooser: Any = import_module("daft_sparsevideo.intervals").IntervalChooser
    clock, choose = ChoiceClock(), chooser.choose

    def timed(*arguments: Any) -> Any:
        chosen, cost = measured(partial(choose, *arguments))
        clock.cpu_s += cost.cpu_s
        return chosen

    with patch.object(chooser, "choose", timed):
        yield clock


def measure_speed(clip: Clip, folder: Path, *, ddra_crf: float, plain_crf: float, rounds: int) -> dict[str, list[Cost]]:
    """Let the encoders do the clip by turns.

    Args:
        clip: What is encoded; it holds the whole of its file.
        folder: Where files are written.
        ddra_crf: Rate factor of DDRA HEVC.
        plain_crf: Rate factor of libx265 that gives the same quality.
        rounds: How often each encodes it.

    Returns:
        What each round of each cost.

    """
    output = folder / "speed.mp4"
    report = reencoded(clip.path, output, codec="hevc", crf=ddra_crf)
    sections = [(section["frame"], section["interval"]) for section in report["intervals"]]
    types = import_module("daft_sparsevideo.ddra").ddra_frame_types(len(clip.frames), sections)
    works: dict[str, Callable[[], object]] = {
        ENCODER: partial(write_types, clip, output, ddra_crf, types),
        PIPELINE: partial(reencoded, clip.path, output, codec="hevc", crf=ddra_crf),
        PLAIN: partial(encode_with_pyav, clip, output, "libx265", x265_options(plain_crf)),
    }

    def contestant(work: Callable[[], object], _: int) -> tuple[object, Cost]:
        return measured(work)

    return interleaved({name: partial(contestant, work) for name, work in works.items()}, range(rounds))
