# SPDX-License-Identifier: Apache-2.0
"""What a shard must be to be used: all its frames, at their times, each a few pictures away."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from daft_sparsevideo import _core
from daft_sparsevideo.errors import GateError


@dataclass(frozen=True)
class ClosureSizes:
    """How many pictures a frame takes alone, itself included, by the decoder's own graph."""

    largest: int
    mean: float
    largest_frame: int


def closure_sizes(shard: _core.Shard) -> ClosureSizes | None:
    """Of all frames of a shard; None where the decoder reports no graph."""
    index = shard.index
    if not index.has_graph or index.num_frames == 0:
        return None
    pictures = shard.explain(np.arange(index.num_frames, dtype=np.int64))[0]
    return ClosureSizes(int(pictures.max()), float(pictures.mean()), int(pictures.argmax()))


def check_written(
    path: str, *, name: str, pts: npt.NDArray[np.int64], time_base: tuple[int, int], closure: int
) -> ClosureSizes:
    """Raise GateError unless a shard has exactly such frames, and no closure is larger than `closure`.

    Args:
        path: The written file.
        name: What messages call it.
        pts: int64 [N], when each frame is to be shown.
        time_base: Numerator and denominator of the unit of `pts`, in seconds.
        closure: Pictures that a frame may take.
    """

    def require(holds: object, what: str) -> None:
        if not holds:
            raise GateError(f"{name} was written, but {what}; it is removed", shard=name)

    shard = _core.Shard(path, name=name)
    index = shard.index
    require(index.num_frames == pts.size, f"has {index.num_frames} frames instead of {pts.size}")
    written, asked = Fraction(*index.time_base), Fraction(*time_base)
    scale = asked / written
    same = scale.denominator == 1 and np.array_equal(index.frame_pts, pts * scale.numerator)
    require(same, "its frames are not at the times of the source's")
    require((np.diff(index.picture_dts) > 0).all(), "its decode times do not rise")
    sizes = closure_sizes(shard)
    if sizes is None:
        raise GateError(f"{name} was written, but the decoder finds no graph: {index.fallback_reason}", shard=name)
    require(
        sizes.largest <= closure,
        f"frame {sizes.largest_frame} takes {sizes.largest} pictures, more than {closure}",
    )
    return sizes
