# SPDX-License-Identifier: Apache-2.0
"""Decoded bytes as the Arrow array of a Daft image, tensor or window column, without a copy."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Mode = Literal["RGB", "L"]

CHANNELS: dict[Mode, int] = {"RGB": 3, "L": 1}
_DAFT_MODE: dict[Mode, int] = {"RGB": 3, "L": 1}  # Daft's numbers for its ImageMode


def check_mode(mode: object) -> Mode:
    """Return `mode`, or raise ValueError when it is none."""
    if mode not in get_args(Mode):
        raise ValueError(f"mode is {mode!r}; choose one of {', '.join(map(repr, get_args(Mode)))}")
    return cast(Mode, mode)


def fixed_image_array(data: npt.NDArray[np.uint8], valid: npt.NDArray[np.bool_], row_bytes: int) -> pa.Array:
    """The storage of `DataType.image(mode, height, width)`.

    Args:
        data: uint8 [N * row_bytes], row after row; null rows have bytes too. The array keeps and shows this memory.
        valid: bool [N], False for a null row.
        row_bytes: height * width * channels.

    Returns:
        A fixed-size list array of N rows.

    >>> array = fixed_image_array(np.arange(12, dtype=np.uint8), np.array([True, False]), 6)
    >>> array.to_pylist()
    [[0, 1, 2, 3, 4, 5], None]
    """
    row_type = pa.list_(pa.field("item", pa.uint8()), row_bytes)
    return pa.Array.from_buffers(
        row_type, valid.size, [_validity(valid)], null_count=int((~valid).sum()), children=[_bytes_array(data)]
    )


def tensor_array(data: npt.NDArray[np.uint8], valid: npt.NDArray[np.bool_], shape: tuple[int, ...]) -> pa.Array:
    """The Arrow array of `DataType.tensor(uint8, shape)`.

    Args:
        data: As for `fixed_image_array`, with prod(shape) bytes a row.
        valid: bool [N], False for a null row.
        shape: Of each row.

    Returns:
        A fixed-shape tensor array of N rows.

    >>> array = tensor_array(np.arange(12, dtype=np.uint8), np.array([True, True]), (1, 2, 3))
    >>> array.to_numpy_ndarray().shape
    (2, 1, 2, 3)
    """
    storage = fixed_image_array(data, valid, int(np.prod(shape)))
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.uint8(), shape), storage)


def window_array(
    data: npt.NDArray[np.uint8],
    valid: npt.NDArray[np.bool_],
    shape: tuple[int, ...],
    is_pad: npt.NDArray[np.bool_],
) -> pa.Array:
    """The Arrow array of a struct of the tensor `frames` and the fixed-size list `is_pad`.

    Args:
        data: As for `tensor_array`.
        valid: bool [N], False for a null row.
        shape: Of each row's frames: steps, height, width, channels.
        is_pad: bool [N, steps].

    Returns:
        A struct array of N rows.

    >>> rows = window_array(np.zeros(6, np.uint8), np.array([True]), (2, 1, 1, 3), np.array([[False, True]]))
    >>> rows.field("is_pad").to_pylist()
    [[False, True]]
    """
    count, steps = is_pad.shape
    validity, null_count = _validity(valid), int((~valid).sum())
    flags = pa.array(is_pad.reshape(-1))
    pad_type = pa.list_(pa.field("item", pa.bool_()), steps)
    columns = {
        "frames": tensor_array(data, valid, shape),
        "is_pad": pa.Array.from_buffers(pad_type, count, [validity], null_count=null_count, children=[flags]),
    }
    return _struct_array(columns, valid)


def image_array(
    data: npt.NDArray[np.uint8],
    valid: npt.NDArray[np.bool_],
    offsets: npt.NDArray[np.int64],
    height: npt.NDArray[np.uint32],
    width: npt.NDArray[np.uint32],
    *,
    mode: Mode = "RGB",
) -> pa.Array:
    """The storage of `DataType.image(mode)`, whose rows may differ in size.

    Args:
        data: uint8 [offsets[N]], row after row. The array keeps and shows this memory.
        valid: bool [N], False for a null row.
        offsets: int64 [N + 1], where each row's bytes begin; those of a null row may be none.
        height: uint32 [N] pixels.
        width: uint32 [N] pixels.
        mode: What a pixel is.

    Returns:
        A struct array of N rows.

    >>> two = np.array([1, 1], np.uint32)
    >>> rows = image_array(np.arange(3, dtype=np.uint8), np.array([True, False]), np.array([0, 3, 3]), two, two)
    >>> rows[0].as_py()
    {'data': [0, 1, 2], 'channel': 3, 'height': 1, 'width': 1, 'mode': 3}
    """
    count = valid.size
    pixels = pa.Array.from_buffers(
        pa.large_list(pa.field("item", pa.uint8())),
        count,
        [_validity(valid), pa.py_buffer(offsets)],
        null_count=int((~valid).sum()),
        children=[_bytes_array(data)],
    )
    columns: dict[str, Any] = {
        "data": pixels,
        "channel": pa.array(np.full(count, CHANNELS[mode], np.uint16)),
        "height": pa.array(height),
        "width": pa.array(width),
        "mode": pa.array(np.full(count, _DAFT_MODE[mode], np.uint8)),
    }
    return _struct_array(columns, valid)


def _struct_array(columns: dict[str, pa.Array], valid: npt.NDArray[np.bool_]) -> pa.Array:
    row_type = pa.struct([pa.field(name, column.type) for name, column in columns.items()])
    null_count = int((~valid).sum())
    children = list(columns.values())
    return pa.Array.from_buffers(row_type, valid.size, [_validity(valid)], null_count=null_count, children=children)


def _bytes_array(data: npt.NDArray[np.uint8]) -> pa.Array:
    return pa.Array.from_buffers(pa.uint8(), data.size, [None, pa.py_buffer(data)])


def _validity(valid: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
