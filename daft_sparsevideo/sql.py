# SPDX-License-Identifier: Apache-2.0
"""`register_sql`: the functions for Daft by their names in `daft.sql`."""

from __future__ import annotations

from typing import Any

import daft
from daft import Expression

from daft_sparsevideo.explain import explain_decode
from daft_sparsevideo.expressions import decode_frames, decode_windows


def register_sql() -> None:
    """Make `decode_frames`, `decode_windows` and `explain_decode` known to `daft.sql` in the current session.

    Columns come first and by position: shard, offset, timestamp and, as the fourth, the episode's end. Options come
    after them by name, `name => value`, and must be literals: numbers, strings, true, false, null, `[0.1, 0.2]`.
    The names are those of Python. `decode_windows` needs the fourth column; `null` there means what None means.

    Example:
        >>> import daft
        >>> register_sql()
        >>> rows = daft.from_pydict({"shard": [video_path] * 2, "begin": [0.0, 1.0], "stop": [1.0, 2.0]})
        >>> frames = "decode_frames(shard, begin, 0.5, stop, height => 64, width => 96, mode => 'L')"
        >>> daft.sql(f"select {frames} as top from rows", rows=rows).schema()["top"].dtype
        Image[L; 64 x 96]
        >>> windows = "decode_windows(shard, begin, 0.0, stop, deltas_s => [-0.1, 0.0], height => 64, width => 96)"
        >>> [window["is_pad"] for window in daft.sql(f"select {windows} from rows", rows=rows).to_pydict()["window"]]
        [[True, False], [True, False]]
    """
    for function in (_decode_frames, _decode_windows, _explain_decode):
        daft.attach_function(function, function.__name__.removeprefix("_"))  # type: ignore[arg-type]


def _decode_frames(
    shard: Expression, offset: Expression, timestamp: Expression, end: Expression | None = None, **options: Any
) -> Expression:
    return decode_frames(shard, offset, timestamp, end=end, **options)


def _decode_windows(
    shard: Expression, offset: Expression, timestamps: Expression, end: Expression, **options: Any
) -> Expression:
    no_end = end.is_literal() and end.as_py() is None
    return decode_windows(shard, offset, timestamps, end=None if no_end else end, **options)


def _explain_decode(
    shard: Expression, offset: Expression, timestamp: Expression, end: Expression | None = None, **options: Any
) -> Expression:
    return explain_decode(shard, offset, timestamp, end=end, **options)
