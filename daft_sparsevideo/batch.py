# SPDX-License-Identifier: Apache-2.0
"""One batch of rows: the frames that they ask for, found and decoded shard by shard into the memory of one column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from daft import DataType, Series

from daft_sparsevideo import _core
from daft_sparsevideo.errors import FrameOutOfRangeError, SparseVideoError, WindowLengthError
from daft_sparsevideo.image_column import CHANNELS, Mode
from daft_sparsevideo.open_shards import OpenShard, ShardSource, open_shards
from daft_sparsevideo.resolve import NO_FRAME, Match, Seconds
from daft_sparsevideo.stats import count_decode

OnError = Literal["raise", "null"]

_Rows = npt.NDArray[np.int64]
_Valid = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Matching:
    """How times are matched with frames, and what happens to rows without one."""

    match: Match
    tolerance_s: float | None
    on_error: OnError


@dataclass(frozen=True)
class Picture:
    """What every frame is made into."""

    size: tuple[int, int] | None  # height, width; None: each frame's own
    mode: Mode
    apply_rotation: bool
    num_threads: int  # 0: the process-wide budget decides

    @property
    def channels(self) -> int:
        """Bytes a pixel."""
        return CHANNELS[self.mode]


@dataclass(frozen=True)
class Targets:
    """Frames of one shard: `frames[k]` are those of row `rows[k]` of the batch."""

    opened: OpenShard
    rows: _Rows
    frames: npt.NDArray[np.int64]  # [len(rows), steps]


@dataclass(frozen=True)
class Pixels:
    """Decoded rows, one after another."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]  # [N + 1] where each row's bytes begin
    height: npt.NDArray[np.int64]  # [N]
    width: npt.NDArray[np.int64]


class Batch:
    """The rows of one call, each of which asks for the same number of frames (steps) of one shard.

    Args:
        shard: Paths or files.
        offset: Seconds where each row's episode begins in the shard.
        timestamp: Seconds since then; numbers, or with `steps` lists of as many numbers.
        end: Seconds where the episode ends in the shard.
        matching: How frames are found.
        steps: Length of the lists of `timestamp`; None: they are numbers.
        delta_s: Seconds added to each timestamp, one for each step.
        padded: Times outside the episode become its first or last frame, and a row without an `end` is null. False:
            they are failures, and a row without an `end` may have any frame of the shard.
    """

    def __init__(
        self,
        shard: Series,
        offset: Series,
        timestamp: Series,
        end: Series,
        matching: Matching,
        *,
        steps: int | None = None,
        delta_s: tuple[float, ...] = (0.0,),
        padded: bool = False,
    ) -> None:
        self.matching = matching
        self.padded = padded
        self.shard = shard
        self.offset_s, offset_valid = _numbers(offset, "offset")
        self.end_s, self.has_end = _numbers(end, "end")
        self.delta_s = np.array(delta_s)
        self.lengths: npt.NDArray[np.int64] | None = None
        if steps is None:
            numbers, timestamp_valid = _numbers(timestamp, "timestamp")
            self.timestamp_s = numbers[:, None]
        else:
            self.timestamp_s, timestamp_valid, self.lengths = _lists(timestamp, "timestamps", steps)
        self.valid = offset_valid & timestamp_valid  # rows that are null or failed are False
        if padded:
            self.valid &= self.has_end
        self.steps = np.broadcast_shapes((self.timestamp_s.shape[1],), self.delta_s.shape)[0]
        self.is_pad = np.zeros((len(shard), self.steps), np.bool_)

    def __len__(self) -> int:
        return int(self.valid.size)

    def resolve(self) -> list[Targets]:
        """Open the batch's shards, in the order of their first rows, and find the frames of all rows."""
        return [found for source, rows in self._rows_by_shard() if (found := self._resolve(source, rows))]

    def decode(self, targets: list[Targets], picture: Picture) -> Pixels:
        """Reconstruct all targets straight into one buffer; bytes of null rows are zero.

        Raises:
            MemoryError: The batch's pixels do not fit into memory.
        """
        try:
            return self._decode(targets, picture)
        except MemoryError as error:
            size = f"{picture.size[0]}x{picture.size[1]}" if picture.size else "their own"
            frames = f"{len(self)} rows of {self.steps} frame{'s' * (self.steps > 1)} of size {size}"
            raise MemoryError(
                f"{frames}, {picture.channels} bytes a pixel, do not fit into memory: lower batch_size"
            ) from error

    def fail(
        self,
        place: tuple[int, int],
        shard: str,
        kind: type[SparseVideoError],
        reason: str,
        cause: Exception | None = None,
    ) -> None:
        """Turn a row null, or raise, because of the frame at `place` (row, step)."""
        row, step = place
        self.valid[row] = False
        if self.matching.on_error == "raise":
            time_s = self.time_s(row, step)
            asked = f"offset {self.offset_s[row]} + timestamp {self._timestamp_at(row, step)}"
            if self.delta_s.any():
                asked += f" + delta {self.delta_s[step]}"
            reason = reason.removeprefix(f"{shard}: ")
            message = f"no frame at {time_s:.6f} s ({asked}) of {shard}: {reason}"
            raise kind(message, shard=shard, time_s=time_s) from cause

    def time_s(self, row: int, step: int) -> float:
        """Seconds in the shard that one frame of a row is asked for with."""
        delta_s = float(np.broadcast_to(self.delta_s, self.steps)[step])
        return float(self.offset_s[row]) + float(self._timestamp_at(row, step)) + delta_s

    def _timestamp_at(self, row: int, step: int) -> np.number:
        number: np.number = np.broadcast_to(self.timestamp_s[row], self.steps)[step]
        return number

    def _rows_by_shard(self) -> list[tuple[ShardSource, _Rows]]:
        """The batch's shards with the rows of each; rows without one turn null."""
        groups: dict[_Identity, list[int]] = {}
        for row, identity in enumerate(_identities(self.shard)):
            if identity is None:
                self.valid[row] = False
            elif self.valid[row]:
                groups.setdefault(identity, []).append(row)
        return [(_source(self.shard, rows[0], identity), np.array(rows, np.int64)) for identity, rows in groups.items()]

    def _resolve(self, source: ShardSource, rows: _Rows) -> Targets | None:
        """Open a shard and find the frames of its rows; None when no row has all of them."""
        rows = self._without_other_lengths(source.path, rows)
        try:
            opened = open_shards.get(source)
        except SparseVideoError as error:
            for row in rows:
                self.fail((row, 0), source.path, type(error), str(error), error)
            return None
        frames = np.full((rows.size, self.steps), NO_FRAME, np.int64)
        if self.padded:
            frames, self.is_pad[rows] = self._find_padded(opened, rows)
        else:
            for limited in (False, True):
                some = self.has_end[rows] == limited
                if some.any():
                    frames[some] = self._find(opened, rows[some], limited=limited)
        missed = frames == NO_FRAME
        for position in np.flatnonzero(missed.any(axis=1)):
            row, step = int(rows[position]), int(missed[position].argmax())
            self.fail((row, step), opened.name, FrameOutOfRangeError, self._explain_miss(opened, row, step))
        found = ~missed.any(axis=1)
        self.is_pad[rows[~found]] = False
        return Targets(opened, rows[found], frames[found]) if found.any() else None

    def _find(self, opened: OpenShard, rows: _Rows, *, limited: bool) -> npt.NDArray[np.int64]:
        return opened.times.resolve(
            self.offset_s[rows, None],
            self.timestamp_s[rows],
            end=self.end_s[rows, None] if limited else None,
            match=self.matching.match,
            tolerance_s=self.matching.tolerance_s,
        )

    def _find_padded(self, opened: OpenShard, rows: _Rows) -> tuple[npt.NDArray[np.int64], _Valid]:
        return opened.times.resolve_padded(
            self.offset_s[rows, None],
            self.timestamp_s[rows],
            delta_s=self.delta_s,
            end=self.end_s[rows, None],
            match=self.matching.match,
            tolerance_s=self.matching.tolerance_s,
        )

    def _explain_miss(self, opened: OpenShard, row: int, step: int) -> str:
        if self.matching.on_error == "null":
            return ""
        episode = (float(self.offset_s[row]), float(self.end_s[row])) if self.has_end[row] else None
        return opened.times.explain_miss(
            self.time_s(row, step),
            episode=episode,
            match=self.matching.match,
            tolerance_s=self.matching.tolerance_s,
        )

    def _without_other_lengths(self, shard: str, rows: _Rows) -> _Rows:
        if self.lengths is None:
            return rows
        other: _Valid = self.lengths[rows] != self.steps
        self.valid[rows[other]] = False
        if self.matching.on_error == "raise" and other.any():
            row = rows[other][0]
            message = f"a row of {shard} has {self.lengths[row]} timestamps, but length={self.steps}"
            raise WindowLengthError(message, shard=shard)
        return rows[~other]

    def _decode(self, targets: list[Targets], picture: Picture) -> Pixels:
        height, width = picture.size or (0, 0)
        heights, widths = np.full(len(self), height, np.int64), np.full(len(self), width, np.int64)
        if not picture.size:  # one step a row: frames of a window share the size that was asked for
            for found in targets:
                shapes = found.opened.frame_shapes(found.frames[:, 0], apply_rotation=picture.apply_rotation)
                heights[found.rows], widths[found.rows] = shapes
        frame_bytes = heights * widths * picture.channels  # of rows of no size: 0
        offsets = np.concatenate([[0], np.cumsum(frame_bytes * self.steps)]).astype(np.int64)
        data = np.empty(int(offsets[-1]), np.uint8)
        for found in targets:
            places = offsets[found.rows, None] + frame_bytes[found.rows, None] * np.arange(self.steps)
            with open_shards.use(found.opened) as shard:
                try:
                    result = shard.decode(
                        found.frames.reshape(-1),
                        data,
                        places.reshape(-1),
                        height=height,
                        width=width,
                        mode=_core.PixelMode[picture.mode],
                        apply_rotation=picture.apply_rotation,
                        num_threads=picture.num_threads,
                    )
                except SparseVideoError as error:
                    for row in found.rows:
                        self.fail((row, 0), found.opened.name, type(error), str(error), error)
                    continue
            count_decode(result.stats)
            for position, kind, cause in result.errors:
                row, step = divmod(position, self.steps)
                self.fail((found.rows[row], step), found.opened.name, kind, cause)
        for row in np.flatnonzero(~self.valid):
            data[offsets[row] : offsets[row + 1]] = 0
        return Pixels(data, offsets, heights, widths)


def _numbers(column: Series, role: str) -> tuple[Seconds, _Valid]:
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


def _lists(column: Series, role: str, length: int) -> tuple[Seconds, _Valid, npt.NDArray[np.int64]]:
    """The numbers of a column's lists, [N, length], which lists are not null and hold no null, and their lengths."""
    kind, count = column.datatype(), len(column)
    if kind.is_null():
        return np.zeros((count, length)), np.zeros(count, np.bool_), np.full(count, length)
    if kind.is_list() and kind.dtype.is_null():
        column = column.cast(DataType.list(DataType.float64()))
        kind = column.datatype()
    if not (kind.is_list() or kind.is_fixed_size_list()) or not kind.dtype.is_numeric():
        raise TypeError(f"{role} must be lists of numeric seconds, but column {column.name()!r} is {kind}")
    array = column.to_arrow()
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), length)).astype(np.int64)
    whole = np.asarray(array.is_valid()) & (lengths == length)
    items = pc.list_flatten(array.filter(pa.array(whole)))
    numbers = items.fill_null(0).to_numpy(zero_copy_only=False)
    seconds = np.zeros((count, length), numbers.dtype)
    seconds[whole] = numbers.reshape(-1, length)
    valid = np.asarray(array.is_valid())
    valid[whole] = np.asarray(items.is_valid()).reshape(-1, length).all(axis=1)
    return seconds, valid, lengths


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


def shard_sources(column: Series) -> list[ShardSource | None]:
    """Where the bytes of each row's shard are; None for null."""
    identities = _identities(column)
    return [None if identity is None else _source(column, row, identity) for row, identity in enumerate(identities)]
