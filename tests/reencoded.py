# SPDX-License-Identifier: Apache-2.0
"""Videos before and after `reencode_ddra`, as PyAV sees them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import daft
import numpy as np
import numpy.typing as npt
import pytest
from daft import col

from daft_sparsevideo import reencode_ddra
from oracle import decode_sequentially, rgb_of
from scenes import number_of

pytest.importorskip("daft_sparsevideo._encoder", reason="built without the encoder")

LIMITED = 1  # the range of samples where none is told (H.264 and H.265, E.3.1): decoders tell it, or nothing
QUICK: dict[str, Any] = {"preset": "ultrafast", "interval": 4}


def reencode(source: Path | str, output: Path | str, **options: Any) -> dict[str, Any]:
    """The report of one shard, written anew as quickly as can be."""
    rows = daft.from_pydict({"shard": [str(source)], "output": [str(output)]})
    report = reencode_ddra(col("shard"), output=col("output"), **(QUICK | options))
    row: dict[str, Any] = rows.select(report).to_pydict()["reencoded"][0]
    return row


@dataclass(frozen=True)
class Shown:
    """What a player shows, and what it is told of colours and shape."""

    times: list[Fraction]  # seconds, exactly
    numbers: list[int]  # that the pictures carry (see `scenes.numbered`)
    size: tuple[int, int]
    pix_fmt: str
    colours: tuple[int, ...]
    sample_aspect_ratio: Fraction
    rotation: int


def shown(path: Path | str) -> Shown:
    """Decode a file from its first packet to its last."""
    frames = list(decode_sequentially(Path(path)))
    with av.open(str(path)) as file:
        stream: Any = file.streams.best("video")
        frame: Any = next(file.decode(stream))
        context = stream.codec_context
        time_base = stream.time_base
        return Shown(
            [one.pts * time_base for one in frames if one.pts is not None],
            [number_of(rgb_of(one)) for one in frames],
            (frame.width, frame.height),
            frame.format.name,
            (frame.colorspace, frame.color_range or LIMITED, context.color_primaries, context.color_trc),
            stream.sample_aspect_ratio or Fraction(0),
            frame.rotation,
        )


def psnr_db(one: npt.NDArray[Any], other: npt.NDArray[Any], peak: int) -> float:
    """The usual formula; 100 for equal pictures."""
    error = float(np.mean((one.astype(np.float64) - other.astype(np.float64)) ** 2))
    return 100.0 if error == 0 else 10 * float(np.log10(peak * peak / error))


def measured_db(source: Path, written: Path) -> dict[str, float]:
    """What a report says of quality, by PyAV and numpy."""
    rgb, luma = [], []
    for one, other in zip(decode_sequentially(source), decode_sequentially(written), strict=True):
        rgb.append(psnr_db(rgb_of(one), rgb_of(other), 255))
        peak, dtype = (1023, np.uint16) if "10" in one.format.name else (255, np.uint8)
        planes = [np.frombuffer(frame.planes[0], dtype).reshape(frame.height, -1) for frame in (one, other)]
        luma.append(psnr_db(planes[0][:, : one.width], planes[1][:, : one.width], peak))
    return {
        "psnr_db": float(np.mean(rgb)),
        "worst_psnr_db": min(rgb),
        "y_psnr_db": float(np.mean(luma)),
        "worst_y_psnr_db": min(luma),
    }


def leftovers(folder: Path) -> list[str]:
    """Files of a folder and below, by their paths there."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
