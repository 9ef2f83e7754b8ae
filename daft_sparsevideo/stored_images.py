# SPDX-License-Identifier: Apache-2.0
"""Cameras whose images lie in the data files of a dataset, encoded."""

from __future__ import annotations

from daft import DataFrame, Expression, col, lit
from daft.functions import coalesce, decode_image, download, resize, when
from daft.io import IOConfig

from daft_sparsevideo.batch import OnError
from daft_sparsevideo.dataset_layout import require


def encoded_image(
    rows: DataFrame, key: str, *, root: str, on_error: OnError = "raise", io_config: IOConfig | None = None
) -> Expression:
    """The bytes of each row's image, out of its cell or of the file that the cell names.

    Args:
        rows: Table with the column `key`: encoded images, or structs of `bytes` and `path`.
        key: The camera.
        root: Folder or URL that paths are relative to.
        on_error: "raise" (default), or "null" for files that cannot be read.
        io_config: How remote files are read.

    Returns:
        Expression of type binary.

    Raises:
        ValueError: There is no such column.
        TypeError: It holds something else.

    Example:
        >>> import daft
        >>> rows = daft.from_pydict({"top": [{"bytes": b"one", "path": "frame-0.png"}]})
        >>> rows.select(encoded_image(rows, "top", root="/data")).to_pydict()
        {'top': [b'one']}
    """
    require(rows, key, f"the data of {root}", "holds a camera's images")
    kind, cell = rows.schema()[key].dtype, col(key)
    if kind.is_binary():
        return cell
    fields = kind.fields if kind.is_struct() else {}
    if "bytes" not in fields:
        raise TypeError(f"the data of {root}: column {key!r} must be images (bytes and path), but is {kind}")
    encoded: Expression = cell.get("bytes")
    if "path" in fields:
        path = cell.get("path")
        url = when(path.regexp(r"^(/|\w+://)"), path).otherwise(lit(f"{root}/") + path)
        url = when(encoded.is_null(), url)
        encoded = coalesce(encoded, download(url, on_error=on_error, io_config=io_config))
    return encoded.alias(key)


def decoded_image(
    encoded: Expression, *, size: tuple[int, int] | None = None, on_error: OnError = "raise"
) -> Expression:
    """The picture of an encoded image.

    Args:
        encoded: Expression of type binary.
        size: Height and width to which Daft resizes it. None (default) leaves each its own size.
        on_error: "raise" (default), or "null" for images that cannot be decoded.

    Returns:
        Expression of type `image("RGB", height, width)`, or `image("RGB")` without a size.

    Example:
        >>> import daft
        >>> rows = daft.from_pydict({"top": [b"not an image"]})
        >>> rows.select(decoded_image(col("top"), size=(2, 3), on_error="null")).schema()["top"].dtype
        Image[RGB; 2 x 3]
    """
    picture = decode_image(encoded, mode="RGB", on_error=on_error)
    return picture if size is None else resize(picture, size[1], size[0])
