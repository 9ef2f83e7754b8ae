# SPDX-License-Identifier: Apache-2.0
"""RGB bytes as the Arrow array of a Daft image column, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

RGB_CHANNELS = 3
_DAFT_MODE_RGB = 3  # Daft's number for ImageMode.RGB


def fixed_image_array(data: npt.NDArray[np.uint8], valid: npt.NDArray[np.bool_], row_bytes: int) -> pa.Array:
    """The storage of `DataType.image("RGB", height, width)`.

    Args:
        data: uint8 [N * row_bytes], row after row; null rows have bytes too. The array keeps and shows this memory.
        valid: bool [N], False for a null row.
        row_bytes: height * width * 3.

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


def image_array(
    data: npt.NDArray[np.uint8],
    valid: npt.NDArray[np.bool_],
    offsets: npt.NDArray[np.int64],
    height: npt.NDArray[np.uint32],
    width: npt.NDArray[np.uint32],
) -> pa.Array:
    """The storage of `DataType.image("RGB")`, whose rows may differ in size.

    Args:
        data: uint8 [offsets[N]], row after row. The array keeps and shows this memory.
        valid: bool [N], False for a null row.
        offsets: int64 [N + 1], where each row's bytes begin; those of a null row may be none.
        height: uint32 [N] pixels.
        width: uint32 [N] pixels.

    Returns:
        A struct array of N rows.

    >>> two = np.array([1, 1], np.uint32)
    >>> rows = image_array(np.arange(3, dtype=np.uint8), np.array([True, False]), np.array([0, 3, 3]), two, two)
    >>> rows[0].as_py()
    {'data': [0, 1, 2], 'channel': 3, 'height': 1, 'width': 1, 'mode': 3}
    """
    count = valid.size
    validity, null_count = _validity(valid), int((~valid).sum())
    pixels = pa.Array.from_buffers(
        pa.large_list(pa.field("item", pa.uint8())),
        count,
        [validity, pa.py_buffer(offsets)],
        null_count=null_count,
        children=[_bytes_array(data)],
    )
    columns: dict[str, Any] = {
        "data": pixels,
        "channel": pa.array(np.full(count, RGB_CHANNELS, np.uint16)),
        "height": pa.array(height),
        "width": pa.array(width),
        "mode": pa.array(np.full(count, _DAFT_MODE_RGB, np.uint8)),
    }
    row_type = pa.struct([pa.field(name, column.type) for name, column in columns.items()])
    return pa.Array.from_buffers(row_type, count, [validity], null_count=null_count, children=list(columns.values()))


def _bytes_array(data: npt.NDArray[np.uint8]) -> pa.Array:
    return pa.Array.from_buffers(pa.uint8(), data.size, [None, pa.py_buffer(data)])


def _validity(valid: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
