# SPDX-License-Identifier: Apache-2.0
"""Windows over the rows of an episode: what neighbouring rows hold, as LeRobot's `delta_timestamps` wants it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import daft
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from daft import DataType, Expression, Series, Window, col
from daft.functions import first_value, lag, last_value, lead, to_list, when


def shifted_cells(column: str, steps: Sequence[int]) -> tuple[list[Expression], Expression]:
    """What a column holds some rows farther on in the same episode, or in its first or last row where that is outside.

    Args:
        column: Its name. Rows are ordered by `frame_index`, episodes told apart by `episode_index`.
        steps: How many rows farther on; negative goes back.

    Returns:
        One expression a step, and a list column [len(steps)] of booleans that are true outside the episode.

    Example:
        >>> rows = daft.from_pydict({"episode_index": [0, 0, 1], "frame_index": [0, 1, 0], "action": [5, 6, 7]})
        >>> (before, own), is_pad = shifted_cells("action", [-1, 0])
        >>> rows.select("action", before.alias("before"), is_pad.alias("is_pad")).sort("action").to_pydict()
        {'action': [5, 6, 7], 'before': [5, 5, 7], 'is_pad': [[True, False], [False, False], [True, False]]}
    """
    episode = Window().partition_by("episode_index").order_by("frame_index")
    whole = episode.rows_between(Window.unbounded_preceding, Window.unbounded_following)
    cells, pads = [], []
    for step in steps:
        shift, edge = (lead, last_value) if step >= 0 else (lag, first_value)
        is_pad = shift(col("episode_index"), abs(step)).over(episode).is_null()
        cells.append(when(is_pad, edge(col(column)).over(whole)).otherwise(shift(col(column), abs(step)).over(episode)))
        pads.append(is_pad)
    return cells, to_list(*pads).cast(DataType.fixed_size_list(DataType.bool(), len(steps)))


def stack(
    cells: Sequence[Expression], kind: DataType, cell_shape: tuple[int, ...], batch_size: int | None = None
) -> Expression:
    """One tensor of the cells of each row.

    Args:
        cells: Columns of numbers, of fixed-size lists or of images of a fixed shape.
        kind: The type of their numbers.
        cell_shape: The shape of each; () for numbers.
        batch_size: Most rows stacked at once; None (default) leaves it to Daft.

    Returns:
        Expression of type `tensor(kind, (len(cells), *cell_shape))`; null where a cell is null.

    Example:
        >>> rows = daft.from_pydict({"a": [1.0, None], "b": [2.0, 3.0]})
        >>> rows.select(stack([col("a"), col("b")], DataType.float64(), ()).alias("both")).to_pydict()
        {'both': [array([1., 2.]), None]}
    """
    shape = (len(cells), *cell_shape)

    @daft.func.batch(return_dtype=DataType.tensor(kind, shape), batch_size=batch_size, use_process=False, max_retries=0)
    def stack_cells(*cells: Series) -> pa.Array:
        return stack_batch(cells, math.prod(cell_shape))

    stacked: Expression = stack_cells(*cells)
    return stacked


def stack_batch(cells: Sequence[Series], cell_size: int) -> pa.Array:
    """Stack one batch of rows; what the Daft function of `stack` calls on every worker."""
    arrays = [_storage(column.to_arrow()) for column in cells]
    valid = np.logical_and.reduce([np.asarray(array.is_valid()) for array in arrays])
    flat = [_numbers(array, cell_size).reshape(valid.size, cell_size) for array in arrays]
    numbers = pa.array(np.stack(flat, axis=1).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(numbers, cell_size * len(cells), mask=pa.array(~valid))


def _storage(array: Any) -> Any:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _numbers(array: Any, cell_size: int) -> npt.NDArray[Any]:
    if pa.types.is_fixed_size_list(array.type):  # its values include those of null rows and of what a slice left out
        array = array.values.slice(array.offset * cell_size, len(array) * cell_size)
    nothing = False if pa.types.is_boolean(array.type) else 0
    numbers: npt.NDArray[Any] = array.fill_null(nothing).to_numpy(zero_copy_only=False)
    return numbers
