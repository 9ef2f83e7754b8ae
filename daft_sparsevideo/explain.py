# SPDX-License-Identifier: Apache-2.0
"""`explain_decode`: what the frames of rows would take, without decoding them."""

from __future__ import annotations

from typing import Any

import daft
import numpy as np
import pyarrow as pa
from daft import DataType, Expression, Series

from daft_sparsevideo.arguments import (
    ShardArgument,
    check_batch_size,
    check_matching,
    number_columns,
    shard_column,
    type_checks,
)
from daft_sparsevideo.batch import Batch, OnError
from daft_sparsevideo.resolve import Match

_FIELDS = {
    "frame": DataType.int64(),
    "pts_s": DataType.float64(),
    "pictures": DataType.int64(),
    "bytes": DataType.int64(),
    "added": DataType.int64(),
    "segment": DataType.int64(),
    "sparse": DataType.bool(),
    "reason": DataType.string(),
}


def explain_decode(
    shard: ShardArgument,
    offset: Expression | float,
    timestamp: Expression | float,
    *,
    end: Expression | float | None = None,
    match: Match = "nearest",
    tolerance_s: float | None = None,
    on_error: OnError = "raise",
    batch_size: int = 128,
) -> Expression:
    """What `decode_frames` would do for each row, as a struct column named "explain"; nothing is decoded.

    Shards are opened and indexed, as for decoding. What the anchor cache holds now is not counted.

    Args:
        shard: As for `decode_frames`, like all others.
        offset: Seconds where the row's episode begins in the shard.
        timestamp: Seconds since then.
        end: Seconds in the shard where the row's episode ends.
        match: "nearest" (default) or "played".
        tolerance_s: Seconds by which a time may miss. None (default) is half of the frame's own interval.
        on_error: "raise" (default) or "null".
        batch_size: Most rows planned together; rows that share pictures share segments.

    Returns:
        Expression of a struct: `frame`, its number in presentation order; `pts_s`, its own time in seconds;
        `pictures`, how many would be reconstructed for this row alone, and `bytes`, their size in the file;
        `added`, those of them that no earlier row of the batch needs, whose sum is what the batch takes;
        `segment`, the coded picture where decoding would start, so rows with the same number are decoded in one run;
        `sparse`, whether pictures that it does not need would be left out, and else `reason`, why not.

    Raises:
        ValueError: An option is out of its range.
        TypeError: An argument is of the wrong type.

    Example:
        >>> import daft
        >>> from daft import col
        >>> rows = daft.from_pydict({"timestamp": [0.0, 1.0]}).select(explain_decode(video_path, 0.0, col("timestamp")))
        >>> first, second = rows.to_pydict()["explain"]
        >>> first["frame"], first["pictures"], second["frame"], second["sparse"], second["reason"]
        (0, 1, 30, True, None)
    """
    matching = check_matching(match, tolerance_s, on_error)

    @daft.func.batch(
        return_dtype=DataType.struct(_FIELDS),
        batch_size=check_batch_size(batch_size),
        use_process=False,
        max_retries=0,
    )
    def explain_batch(_checks: Series, shard: Series, offset: Series, timestamp: Series, end: Series) -> pa.Array:
        return explain_column(Batch(shard, offset, timestamp, end, matching))

    numbers = number_columns(offset=offset, timestamp=timestamp, end=end)
    checks = type_checks(numbers)
    explained: Expression = explain_batch(checks, shard_column(shard), *numbers.values())
    return explained.alias("explain")


def explain_column(batch: Batch) -> pa.Array:
    """Explain one batch of rows; what the Daft function of `explain_decode` calls on every worker."""
    columns: dict[str, Any] = {name: np.zeros(len(batch), np.int64) for name in _FIELDS}
    columns["pts_s"] = np.zeros(len(batch), np.float64)
    columns["sparse"] = np.zeros(len(batch), np.bool_)
    columns["reason"] = np.full(len(batch), None, object)
    for found in batch.resolve():
        frames, rows = found.frames[:, 0], found.rows
        pictures, size_bytes, added, segment, sparse = found.opened.shard.explain(frames)
        columns["frame"][rows] = frames
        columns["pts_s"][rows] = found.opened.pts_s[frames]
        columns["pictures"][rows] = pictures
        columns["bytes"][rows] = size_bytes
        columns["added"][rows] = added
        columns["segment"][rows] = segment
        columns["sparse"][rows] = sparse
        reason = found.opened.shard.index.fallback_reason or "decoding cannot start between it and what it needs"
        columns["reason"][rows[sparse == 0]] = reason
    arrays = [pa.array(values, pa.string() if name == "reason" else None) for name, values in columns.items()]
    return pa.StructArray.from_arrays(arrays, list(columns), mask=pa.array(~batch.valid))
