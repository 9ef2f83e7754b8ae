# SPDX-License-Identifier: Apache-2.0
"""`decode_frames`: rows that say which frame become a Daft image column."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, cast, get_args

import daft
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from daft import DataType, Expression, Series

from daft_sparsevideo.errors import FrameOutOfRangeError, SparseVideoError
from daft_sparsevideo.frames import check_num_threads
from daft_sparsevideo.image_column import RGB_CHANNELS, fixed_image_array, image_array
from daft_sparsevideo.open_shards import OpenShard, ShardSource, open_shards
from daft_sparsevideo.resolve import NO_FRAME, Match, check_match, check_tolerance

OnError = Literal["raise", "null"]

_LARGEST_ROW_BYTES = 2**31 - 1  # Arrow's fixed-size lists


def decode_frames(
    shard: Expression | daft.File | str | os.PathLike[str],
    offset: Expression | float,
    timestamp: Expression | float,
    *,
    height: int | None = None,
    width: int | None = None,
    match: Match = "nearest",
    tolerance_s: float | None = None,
    on_error: OnError = "raise",
    apply_rotation: bool = False,
    batch_size: int = 128,
    num_threads: int | None = None,
) -> Expression:
    """The frame at `offset + timestamp` seconds of each row's shard, as an image column named "frame".

    Rows of a batch that name the same shard are decoded together, whatever their order: a picture that several of
    them need is reconstructed once. Rows that are null in any of the three columns give null.

    Args:
        shard: Column of paths (or URLs), `daft.File` or `daft.VideoFile`; or one of them for all rows. A string here
            is a path, not a column's name.
        offset: Seconds where the row's episode begins in the shard; a numeric column or a number.
        timestamp: Seconds since then; a numeric column or a number. Times are matched with the stream's own
            presentation times, and float32 columns are allowed their rounding error.
        height: Pixels; with `width` it gives the column a fixed shape, and a frame of another size is resized to it
            (bilinear). None (default) leaves every frame its own size.
        width: Pixels; given together with `height` or not at all.
        match: "nearest" (default) takes the frame whose time is nearest, "played" the one on the screen.
        tolerance_s: Seconds by which a time may miss. None (default) is half of the frame's own interval.
        on_error: "raise" (default) ends the query with one exception that names shard, time and cause; "null" gives
            null in exactly the rows that fail.
        apply_rotation: Turn frames as the video's rotation asks; `height` and `width` are those of the turned
            frame. False (default) returns frames as coded.
        batch_size: Most rows decoded together. Their pixels are in memory at once.
        num_threads: Decoder threads for one batch; None (default) lets the process-wide budget decide.

    Returns:
        Expression of type `image("RGB", height, width)`, or `image("RGB")` without a size.

    Raises:
        ValueError: An option is out of its range, or only one of `height` and `width` is given.
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
    options = _Options(
        size=_check_size(height, width),
        match=check_match(match),
        tolerance_s=check_tolerance(tolerance_s),
        on_error=_check_on_error(on_error),
        apply_rotation=bool(apply_rotation),
        num_threads=check_num_threads(num_threads),
    )
    if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)):
        raise TypeError(f"batch_size must be a whole number, not {type(batch_size).__name__}")
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; it must be at least 1")
    return_type = DataType.image("RGB", *options.size) if options.size else DataType.image("RGB")

    @daft.func.batch(return_dtype=return_type, batch_size=int(batch_size), use_process=False, max_retries=0)
    def decode_frame_batch(shard: Series, offset: Series, timestamp: Series) -> pa.Array:
        return decode_batch(shard, offset, timestamp, options)

    columns = _shard_column(shard), _number_column(offset, "offset"), _number_column(timestamp, "timestamp")
    expression: Expression = decode_frame_batch(*columns)
    return expression.alias("frame")


@dataclass(frozen=True)
class _Options:
    size: tuple[int, int] | None  # height, width
    match: Match
    tolerance_s: float | None
    on_error: OnError
    apply_rotation: bool
    num_threads: int


@dataclass(frozen=True)
class _Targets:
    """Frames to decode from one shard: `frames[k]` goes to row `rows[k]` of the batch."""

    opened: OpenShard
    rows: npt.NDArray[np.int64]
    frames: npt.NDArray[np.int64]


def decode_batch(shard: Series, offset: Series, timestamp: Series, options: _Options) -> pa.Array:
    """Decode one batch of rows; what the Daft function of `decode_frames` calls on every worker."""
    batch = _Batch(shard, offset, timestamp, options)
    targets = [found for source, rows in batch.rows_by_shard() if (found := batch.resolve(source, rows))]
    return batch.decode(targets)


class _Batch:
    def __init__(self, shard: Series, offset: Series, timestamp: Series, options: _Options) -> None:
        self.options = options
        self.shard = shard
        self.offset_s, offset_valid = _numbers(offset, "offset")
        self.timestamp_s, timestamp_valid = _numbers(timestamp, "timestamp")
        self.valid = offset_valid & timestamp_valid  # rows that are null or failed are False
        height, width = options.size or (0, 0)
        self.height = np.full(len(shard), height, np.int64)
        self.width = np.full(len(shard), width, np.int64)

    def rows_by_shard(self) -> list[tuple[ShardSource, npt.NDArray[np.int64]]]:
        """The batch's shards in the order of their first rows, with the rows of each; rows without one turn null."""
        groups: dict[_Identity, list[int]] = {}
        for row, identity in enumerate(_identities(self.shard)):
            if identity is None:
                self.valid[row] = False
            elif self.valid[row]:
                groups.setdefault(identity, []).append(row)
        return [(_source(self.shard, rows[0], identity), np.array(rows, np.int64)) for identity, rows in groups.items()]

    def resolve(self, source: ShardSource, rows: npt.NDArray[np.int64]) -> _Targets | None:
        """Open a shard and find the frames and their sizes; None when no row has one."""
        try:
            opened = open_shards.get(source)
        except SparseVideoError as error:
            self.fail(rows, source.path, type(error), str(error), error)
            return None
        match, tolerance_s = self.options.match, self.options.tolerance_s
        frames = opened.times.resolve(self.offset_s[rows], self.timestamp_s[rows], match=match, tolerance_s=tolerance_s)
        missed = rows[frames == NO_FRAME]
        if missed.size:
            reason = opened.times.explain_miss(self.time_s(missed[0]), match=match, tolerance_s=tolerance_s)
            self.fail(missed, opened.name, FrameOutOfRangeError, reason)
        targets = _Targets(opened, rows[frames != NO_FRAME], frames[frames != NO_FRAME])
        if not self.options.size:
            shapes = opened.frame_shapes(targets.frames, apply_rotation=self.options.apply_rotation)
            self.height[targets.rows], self.width[targets.rows] = shapes
        return targets

    def decode(self, targets: list[_Targets]) -> pa.Array:
        """Reconstruct all targets straight into the memory of the returned column."""
        row_bytes = self.height * self.width * RGB_CHANNELS  # of rows of no size: 0
        offsets = np.concatenate([[0], np.cumsum(row_bytes)]).astype(np.int64)
        data = np.empty(int(offsets[-1]), np.uint8)
        height, width = self.options.size or (0, 0)
        for found in targets:
            with open_shards.use(found.opened) as shard:
                try:
                    result = shard.decode(
                        found.frames,
                        data,
                        offsets[found.rows],
                        height=height,
                        width=width,
                        apply_rotation=self.options.apply_rotation,
                        num_threads=self.options.num_threads,
                    )
                except SparseVideoError as error:
                    self.fail(found.rows, found.opened.name, type(error), str(error), error)
                    continue
            for position, kind, cause in result.errors:
                self.fail(found.rows[position : position + 1], found.opened.name, kind, cause)
        for row in np.flatnonzero(~self.valid):
            data[offsets[row] : offsets[row + 1]] = 0
        if self.options.size:
            return fixed_image_array(data, self.valid, height * width * RGB_CHANNELS)
        return image_array(data, self.valid, offsets, self.height.astype(np.uint32), self.width.astype(np.uint32))

    def time_s(self, row: np.int64) -> float:
        """Seconds in the shard that a row asks for."""
        return float(self.offset_s[row]) + float(self.timestamp_s[row])

    def fail(
        self,
        rows: npt.NDArray[np.int64],
        shard: str,
        kind: type[SparseVideoError],
        reason: str,
        cause: SparseVideoError | None = None,
    ) -> None:
        """Turn rows null, or raise for the first of them."""
        self.valid[rows] = False
        if self.options.on_error == "raise":
            time_s = self.time_s(rows[0])
            asked = f"offset {self.offset_s[rows[0]]} + timestamp {self.timestamp_s[rows[0]]}"
            reason = reason.removeprefix(f"{shard}: ")
            message = f"no frame at {time_s:.6f} s ({asked}) of {shard}: {reason}"
            raise kind(message, shard=shard, time_s=time_s) from cause


def _shard_column(shard: Expression | daft.File | str | os.PathLike[str]) -> Expression:
    if isinstance(shard, Expression):
        return shard
    if isinstance(shard, (str, os.PathLike)):
        return daft.lit(os.fspath(shard))
    if isinstance(shard, daft.File):
        return daft.lit(shard)
    raise TypeError(f"shard must be a column, a path or a daft.File, not {type(shard).__name__}")


def _number_column(seconds: Expression | float, role: str) -> Expression:
    if isinstance(seconds, Expression):
        return seconds
    if isinstance(seconds, (int, float, np.integer, np.floating)) and not isinstance(seconds, bool):
        return daft.lit(float(seconds))
    hint = f"; for a column write daft.col({seconds!r})" if isinstance(seconds, str) else ""
    raise TypeError(f"{role} must be a column or a number of seconds, not {type(seconds).__name__}{hint}")


def _numbers(column: Series, role: str) -> tuple[npt.NDArray[np.number], npt.NDArray[np.bool_]]:
    """The numbers of a column in their own precision, and which of them are not null."""
    kind = column.datatype()
    if kind.is_null():
        return np.zeros(len(column)), np.zeros(len(column), np.bool_)
    if kind.is_decimal128():
        column = column.cast(DataType.float64())
    elif not kind.is_numeric():
        raise TypeError(f"{role} must be numeric seconds, but column {column.name()!r} is {kind}")
    array = column.to_arrow()
    valid = np.asarray(array.is_valid())
    return array.fill_null(0).to_numpy(zero_copy_only=False), valid


_Identity = str | tuple[str, int | None, int | None, bytes | None]
"""What tells a shard from others: a path, or url, position, size and IOConfig of a `daft.File`."""


def _identities(column: Series) -> list[_Identity | None]:
    """Each row's shard; None for null."""
    kind = column.datatype()
    if kind.is_null():
        return [None] * len(column)
    if kind.is_string():
        return list(column.to_arrow().to_pylist())
    if kind.is_file():
        files = column.to_arrow().storage
        fields = ("url", "position", "size", "io_config")
        rows = zip(*(files.field(name).to_pylist() for name in fields), strict=True)
        return [row if row[0] is not None else None for row in rows]
    raise TypeError(f"shard must be paths or files, but column {column.name()!r} is {kind}")


def _source(column: Series, row: int, identity: _Identity) -> ShardSource:
    if isinstance(identity, str):
        return ShardSource.of_path(identity)
    return ShardSource.of_file(column.slice(row, row + 1).to_pylist()[0], io_config=identity[3])


def _check_size(height: int | None, width: int | None) -> tuple[int, int] | None:
    if height is None and width is None:
        return None
    if height is None or width is None:
        raise ValueError(f"height={height} and width={width}: give both, or neither")
    for name, pixels in (("height", height), ("width", width)):
        if isinstance(pixels, bool) or not isinstance(pixels, (int, np.integer)):
            raise TypeError(f"{name} must be a whole number of pixels, not {type(pixels).__name__}")
        if pixels < 1:
            raise ValueError(f"{name} is {pixels}; it must be at least 1 pixel")
    if int(height) * int(width) * RGB_CHANNELS > _LARGEST_ROW_BYTES:
        raise ValueError(f"height={height} and width={width}: a row of a column holds at most 2 GiB")
    return int(height), int(width)


def _check_on_error(on_error: object) -> OnError:
    if on_error not in get_args(OnError):
        raise ValueError(f"on_error is {on_error!r}; choose one of {', '.join(map(repr, get_args(OnError)))}")
    return cast(OnError, on_error)
