# SPDX-License-Identifier: Apache-2.0
"""Bytes of one encoder at any quality, between the qualities at which it was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.clips import Coded

POINTS_ON_EACH_SIDE = 2


@dataclass(frozen=True)
class RateCurve:
    """Points at several rate factors (crf)."""

    points: Mapping[float, Coded]

    def bytes_at(self, psnr_db: float) -> float:
        """Interpolate the logarithm of the bytes over PSNR."""
        return math.exp(self._at(psnr_db, {crf: math.log(point.size_bytes) for crf, point in self.points.items()}))

    def crf_at(self, psnr_db: float) -> float:
        """Interpolate the crf over PSNR."""
        return self._at(psnr_db, {crf: crf for crf in self.points})

    def _at(self, psnr_db: float, values: Mapping[float, float]) -> float:
        below, above = self._beside(psnr_db)
        nearest = [*below[-POINTS_ON_EACH_SIDE:], *above[:POINTS_ON_EACH_SIDE]]
        assert min(len(below), len(above)) >= POINTS_ON_EACH_SIDE, f"{psnr_db:.2f} dB is not bracketed"
        distance = [self.points[crf].psnr_db - psnr_db for crf in nearest]
        return float(np.polyfit(distance, [values[crf] for crf in nearest], len(nearest) - 1)[-1])

    def _beside(self, psnr_db: float) -> tuple[list[float], list[float]]:
        """Rate factors of the points below a PSNR and of the others, each in the order of their PSNR."""
        ordered = sorted(self.points, key=lambda crf: self.points[crf].psnr_db)
        return (
            [crf for crf in ordered if self.points[crf].psnr_db < psnr_db],
            [crf for crf in ordered if self.points[crf].psnr_db >= psnr_db],
        )

    def lacks(self, psnr_db: float) -> int:
        """Tell whether points are lacking that are better than a PSNR (-1), worse (1), or none (0)."""
        below, above = self._beside(psnr_db)
        if len(above) < POINTS_ON_EACH_SIDE:
            return -1
        return 1 if len(below) < POINTS_ON_EACH_SIDE else 0


def trace_curve(
    measure: Callable[[float], Coded],
    psnrs_db: Sequence[float],
    *,
    first_crf: float,
    step: float,
    limits: tuple[float, float] = (0, 51),
) -> RateCurve:
    """Encode at one rate factor after the other until every PSNR has two points on either side.

    Args:
        measure: Encodes at a crf.
        psnrs_db: Where the curve will be asked.
        first_crf: Where to begin.
        step: From one crf to the next.
        limits: The least and the greatest crf.

    Returns:
        The curve.

    Raises:
        ValueError: The limits do not bracket a PSNR.

    """
    curve = RateCurve({first_crf: measure(first_crf)})
    for psnr_db in psnrs_db:
        while (side := curve.lacks(psnr_db)) != 0:
            crf = (min if side < 0 else max)(curve.points) + side * step
            if not limits[0] <= crf <= limits[1]:
                raise ValueError(f"{psnr_db:.2f} dB lies outside what crf {limits[0]} to {limits[1]} give")
            curve = RateCurve({**curve.points, crf: measure(crf)})
    return curve
