# SPDX-License-Identifier: Apache-2.0
"""`decode_frames`, `decode_windows`: rows that say which frames become a Daft column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import daft
import numpy as np
import pyarrow as pa
from daft import DataType, Expression, Series

from daft_sparsevideo.arguments import (
    ShardArgument,
    check_batch_size,
    check_count,
    check_matching,
    check_picture,
    number_columns,
    shard_column,
    type_checks,
)
from daft_sparsevideo.batch import Batch, Matching, OnError, Picture
from daft_sparsevideo.image_column import Mode, fixed_image_array, image_array, tensor_array, window_array
from daft_sparsevideo.resolve import Match

_LARGEST_ROW_BYTES = 2**31 - 1  # Arrow's fixed-size lists


def decode_frames(
    shard: ShardArgument,
    offset: Expression | float,
    timestamp: Expression | float,
    *,
    end: Expression | float | None = None,
    height: int | None = None,
    width: int | None = None,
    mode: Mode = "RGB",
    as_tensor: bool = False,
    match: Match = "nearest",
    tolerance_s: float | None = None,
    on_error: OnError = "raise",
    apply_rotation: bool = False,
    batch_size: int = 128,
    num_threads: int | None = None,
) -> Expression:
    """The frame at `offset + timestamp` seconds of each row's shard, as an image or tensor column named "frame".

    Rows of a batch that name the same shard are decoded together, whatever their order: a picture that several of
    them need is reconstructed once. Rows that are null in shard, offset or timestamp give null.

    Args:
        shard: Column of paths (or URLs), `daft.File` or `daft.VideoFile`; or one of them for all rows. A string here
            is a path, not a column's name.
        offset: Seconds where the row's episode begins in the shard; a numeric column or a number.
        timestamp: Seconds since then; a numeric column or a number. Times are matched with the stream's own
            presentation times, and float32 columns are allowed their rounding error.
        end: Seconds in the shard where the row's episode ends (not inside it), LeRobot's `to_timestamp`; a numeric
            column or a number. A time outside [offset, end) fails then, even if the shard has a frame there; less
            than half a frame interval before the episode's first frame is still that frame. None (default), and
            null in a row: only the shard's own limits hold.
        height: Pixels; with `width` it gives the column a fixed shape, and a frame of another size is resized to it
            (swscale's bilinear filter). None (default) leaves every frame its own size.
        width: Pixels; given together with `height` or not at all.
        mode: "RGB" (default), or "L" for 8-bit grey: what PyAV makes of a frame with `format="gray"`.
        as_tensor: Give a fixed-shape tensor column instead of images; needs `height` and `width`.
        match: "nearest" (default) takes the frame whose time is nearest, "played" the one on the screen.
        tolerance_s: Seconds by which a time may miss. None (default) is half of the frame's own interval.
        on_error: "raise" (default) ends the query with one exception that names shard, time and cause; "null" gives
            null in exactly the rows that fail.
        apply_rotation: Turn frames as the video's rotation asks; `height` and `width` are those of the turned
            frame. False (default) returns frames as coded.
        batch_size: Most rows decoded together. Their pixels are in memory at once.
        num_threads: Decoder threads for one batch; None (default) lets the process-wide budget decide.

    Returns:
        Expression of type `image(mode, height, width)`, or `image(mode)` without a size. With `as_tensor`
        `tensor(uint8, (height, width, 3))`; for "L" `(height, width, 1)`, the shape that Daft's own images have.

    Raises:
        ValueError: An option is out of its range, or only one of `height` and `width` is given. Daft raises one, in
            `select` or `with_column`, where a column is missing or not of numbers.
        TypeError: An argument is of the wrong type.

    Example:
        >>> import daft
        >>> from daft import col
        >>> rows = daft.from_pydict({"shard": [video_path] * 3, "timestamp": [2.0, 0.5, 2.0]})
        >>> decoded = rows.with_column("top", decode_frames(col("shard"), 0.0, col("timestamp"), height=64, width=96))
        >>> decoded.schema()["top"].dtype
        Image[RGB; 64 x 96]
        >>> [picture.shape for picture in decoded.to_pydict()["top"]]
        [(64, 96, 3), (64, 96, 3), (64, 96, 3)]
    """
    picture = check_picture(height, width, mode, apply_rotation=apply_rotation, num_threads=num_threads)
    frames = _check_frames(check_matching(match, tolerance_s, on_error), picture, as_tensor=as_tensor)

    @daft.func.batch(
        return_dtype=frames.data_type, batch_size=check_batch_size(batch_size), use_process=False, max_retries=0
    )
    def decode_frame_batch(_checks: Series, shard: Series, offset: Series, timestamp: Series, end: Series) -> pa.Array:
        return frames.column(shard, offset, timestamp, end)

    numbers = number_columns(offset=offset, timestamp=timestamp, end=end)
    checks = type_checks(numbers)
    frame: Expression = decode_frame_batch(checks, shard_column(shard), *numbers.values())
    return frame.alias("frame")


def decode_windows(
    shard: ShardArgument,
    offset: Expression | float,
    timestamps: Expression | float,
    *,
    end: Expression | float | None,
    deltas_s: Sequence[float] | None = None,
    length: int | None = None,
    height: int,
    width: int,
    mode: Mode = "RGB",
    match: Match = "nearest",
    tolerance_s: float | None = None,
    on_error: OnError = "raise",
    apply_rotation: bool = False,
    batch_size: int = 32,
    num_threads: int | None = None,
) -> Expression:
    """Several frames of each row's episode, as a column "window" of the tensor `frames` and the flags `is_pad`.

    The times are `offset + timestamps`, each with `deltas_s` added. As in LeRobot, a time outside the episode
    [offset, end) gives the episode's first or last frame, and its `is_pad` is true; never a frame of a neighbour.
    All windows of a batch that name the same shard are decoded together: what they share is reconstructed once.
    Rows that are null in any column, or hold a null in their list, give null.

    Args:
        shard: As for `decode_frames`.
        offset: Seconds where the row's episode begins in the shard; a numeric column or a number.
        timestamps: Seconds since then: a numeric column (or a number) with `deltas_s`, or a column of lists, all of
            the same `length`.
        end: Seconds in the shard where the row's episode ends (not inside it), LeRobot's `to_timestamp`; a numeric
            column or a number. None: all that follows in the shard belongs to the episode.
        deltas_s: Seconds added to each timestamp, one number for each frame of the window.
        length: Frames of a window, where `timestamps` are lists. A row with another number of them fails.
        height: Pixels; frames of another size are resized (swscale's bilinear filter).
        width: Pixels.
        mode: As for `decode_frames`.
        match: As for `decode_frames`.
        tolerance_s: As for `decode_frames`, for the times inside the episode.
        on_error: "raise" (default) ends the query with one exception; "null" gives null in the rows of which any
            frame fails.
        apply_rotation: As for `decode_frames`.
        batch_size: Most rows decoded together. The pixels of all their windows are in memory at once.
        num_threads: As for `decode_frames`.

    Returns:
        Expression of type `struct(frames: tensor(uint8, (T, height, width, 3)), is_pad: fixed_size_list(bool, T))`;
        the last dimension is 1 for mode "L".

    Raises:
        ValueError: An option is out of its range, or not exactly one of `deltas_s` and `length` is given.
        TypeError: An argument is of the wrong type.

    Example:
        >>> import daft
        >>> from daft import col
        >>> rows = daft.from_pydict({"shard": [video_path] * 2, "timestamp": [0.0, 0.5]})
        >>> window = decode_windows(
        ...     col("shard"), 1.0, col("timestamp"), end=2.0, deltas_s=[-0.1, 0.0, 0.1], height=64, width=96
        ... )
        >>> first, second = rows.select(window).to_pydict()["window"]
        >>> first["frames"].shape, first["is_pad"], second["is_pad"]
        ((3, 64, 96, 3), [True, False, False], [False, False, False])
    """
    picture = check_picture(height, width, mode, apply_rotation=apply_rotation, num_threads=num_threads)
    windows = _check_windows(check_matching(match, tolerance_s, on_error), picture, deltas_s, length)

    @daft.func.batch(
        return_dtype=windows.data_type, batch_size=check_batch_size(batch_size), use_process=False, max_retries=0
    )
    def decode_window_batch(
        _checks: Series, shard: Series, offset: Series, timestamps: Series, end: Series
    ) -> pa.Array:
        return windows.column(shard, offset, timestamps, end)

    if windows.deltas_s is None and not isinstance(timestamps, Expression):
        raise TypeError(f"timestamps must be a column of lists, not {type(timestamps).__name__}")
    columns = number_columns(offset=offset, timestamps=timestamps, end=np.inf if end is None else end)
    are_lists = windows.deltas_s is None  # their type is told when the query runs: an empty list has none
    checks = type_checks({name: column for name, column in columns.items() if name != "timestamps" or not are_lists})
    window: Expression = decode_window_batch(checks, shard_column(shard), *columns.values())
    return window.alias("window")


@dataclass(frozen=True)
class _Frames:
    """A column with one frame a row."""

    matching: Matching
    picture: Picture
    as_tensor: bool

    @property
    def data_type(self) -> DataType:
        size = self.picture.size or ()
        image = DataType.image(self.picture.mode, *size)
        data_type: DataType = DataType.tensor(DataType.uint8(), self.shape) if self.as_tensor else image
        return data_type

    @property
    def shape(self) -> tuple[int, ...]:
        return *(self.picture.size or ()), self.picture.channels

    def column(self, shard: Series, offset: Series, timestamp: Series, end: Series) -> pa.Array:
        """Decode one batch of rows; what the Daft function calls on every worker."""
        batch = Batch(shard, offset, timestamp, end, self.matching)
        pixels = batch.decode(batch.resolve(), self.picture)
        if self.picture.size is None:
            sizes = pixels.height.astype(np.uint32), pixels.width.astype(np.uint32)
            return image_array(pixels.data, batch.valid, pixels.offsets, *sizes, mode=self.picture.mode)
        if self.as_tensor:
            return tensor_array(pixels.data, batch.valid, self.shape)
        return fixed_image_array(pixels.data, batch.valid, int(np.prod(self.shape)))


@dataclass(frozen=True)
class _Windows:
    """A column with several frames a row."""

    matching: Matching
    picture: Picture
    deltas_s: tuple[float, ...] | None  # None: the timestamps are lists
    length: int

    @property
    def data_type(self) -> DataType:
        is_pad = DataType.fixed_size_list(DataType.bool(), self.length)
        frames = DataType.tensor(DataType.uint8(), self.shape)
        data_type: DataType = DataType.struct({"frames": frames, "is_pad": is_pad})
        return data_type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.length, *(self.picture.size or ()), self.picture.channels

    def column(self, shard: Series, offset: Series, timestamps: Series, end: Series) -> pa.Array:
        """Decode one batch of rows; what the Daft function calls on every worker."""
        if self.deltas_s is None:
            batch = Batch(shard, offset, timestamps, end, self.matching, steps=self.length, padded=True)
        else:
            batch = Batch(shard, offset, timestamps, end, self.matching, delta_s=self.deltas_s, padded=True)
        pixels = batch.decode(batch.resolve(), self.picture)
        return window_array(pixels.data, batch.valid, self.shape, batch.is_pad)


def _check_frames(matching: Matching, picture: Picture, *, as_tensor: bool) -> _Frames:
    frames = _Frames(matching, picture, bool(as_tensor))
    if picture.size is None:
        if as_tensor:
            raise ValueError("as_tensor=True needs height and width: all rows of a tensor column have one shape")
    else:
        _check_row_bytes(frames.shape)
    return frames


def _check_windows(
    matching: Matching, picture: Picture, deltas_s: Sequence[float] | None, length: int | None
) -> _Windows:
    if (deltas_s is None) == (length is None):
        raise ValueError("give deltas_s with one timestamp a row, or length with lists of timestamps")
    if picture.size is None:
        raise ValueError("decode_windows needs height and width: all windows of a column have one shape")
    if deltas_s is None:
        windows = _Windows(matching, picture, None, check_count("length", length, "frame"))
    else:
        deltas = np.asarray(deltas_s)
        if deltas.ndim != 1 or deltas.size == 0 or deltas.dtype.kind not in "fiu":
            raise TypeError(f"deltas_s must be a list of numbers of seconds, not {deltas_s!r}")
        if not np.isfinite(deltas).all():
            raise ValueError(f"deltas_s must be finite, not {deltas_s!r}")
        windows = _Windows(matching, picture, tuple(deltas.astype(np.float64).tolist()), deltas.size)
    _check_row_bytes(windows.shape)
    return windows


def _check_row_bytes(shape: tuple[int, ...]) -> None:
    if math.prod(shape) > _LARGEST_ROW_BYTES:
        raise ValueError(f"a row of {' x '.join(map(str, shape))} bytes: a row of a column holds at most 2 GiB")
