# SPDX-License-Identifier: Apache-2.0
"""What the functions for Daft are given: columns made of their arguments, and options checked before a plan is made."""

from __future__ import annotations

import os
from typing import cast, get_args

import daft
import numpy as np
from daft import Expression
from daft.functions import is_nan, to_struct

from daft_sparsevideo.batch import Matching, OnError, Picture
from daft_sparsevideo.frames import check_num_threads
from daft_sparsevideo.image_column import check_mode
from daft_sparsevideo.resolve import check_match, check_tolerance

ShardArgument = Expression | daft.File | str | os.PathLike[str]


def shard_column(shard: ShardArgument) -> Expression:
    """The column that names shards."""
    if isinstance(shard, Expression):
        return shard
    if isinstance(shard, (str, os.PathLike)):
        return daft.lit(os.fspath(shard))
    if isinstance(shard, daft.File):
        return daft.lit(shard)
    raise TypeError(f"shard must be a column, a path or a daft.File, not {type(shard).__name__}")


def number_columns(**seconds: Expression | float | None) -> dict[str, Expression]:
    """The columns of what the arguments call seconds, by the arguments' names; an `end` of None gives nulls."""
    return {role: _number_column(given, role) for role, given in seconds.items()}


def _number_column(seconds: Expression | float | None, role: str) -> Expression:
    if isinstance(seconds, Expression):
        return seconds
    if seconds is None and role == "end":
        return daft.lit(None)
    if isinstance(seconds, (int, float, np.integer, np.floating)) and not isinstance(seconds, bool):
        return daft.lit(float(seconds))
    hint = f"; for a column write daft.col({seconds!r})" if isinstance(seconds, str) else ""
    raise TypeError(f"{role} must be a column or a number of seconds, not {type(seconds).__name__}{hint}")


def type_checks(numbers: dict[str, Expression]) -> Expression:
    """A column that no plan can be made with where a column is not of numbers.

    When a plan is made, Daft works out the type of a Python function's first argument, and of no other one. So this
    goes there: every column in a function that takes numbers only, and whose message begins with the column's alias.

    Args:
        numbers: Columns by what the arguments call them.
    """
    checks = []
    for role, column in numbers.items():
        named = f"{role} must be numeric seconds, but column {column.name()!r} is "
        checks.append(is_nan((column + 0.0).alias(named)).alias(role))
    checked: Expression = to_struct(*checks)
    return checked


def check_batch_size(batch_size: int) -> int:
    """Return `batch_size`; raise TypeError or ValueError for what is no number of rows."""
    return check_count("batch_size", batch_size, "row")


def check_count(name: str, count: object, unit: str) -> int:
    """Return `count`; raise TypeError or ValueError for what is no number of `unit`s."""
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)):
        raise TypeError(f"{name} must be a whole number of {unit}s, not {type(count).__name__}")
    if count < 1:
        raise ValueError(f"{name} is {count}; it must be at least 1 {unit}")
    return int(count)


def check_number(name: str, number: object) -> float:
    """Return `number`; raise TypeError for what is none."""
    if isinstance(number, bool) or not isinstance(number, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number, not {type(number).__name__}")
    return float(number)


def check_flag(name: str, flag: object) -> bool:
    """Return `flag`; raise TypeError for what is neither True nor False."""
    if not isinstance(flag, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, not {type(flag).__name__}")
    return bool(flag)


def check_picture(
    height: int | None, width: int | None, mode: object, *, apply_rotation: bool, num_threads: int | None
) -> Picture:
    """What every frame is made into; raise ValueError or TypeError for options out of their range."""
    size = None
    if height is not None and width is not None:
        size = check_count("height", height, "pixel"), check_count("width", width, "pixel")
    elif height is not None or width is not None:
        raise ValueError(f"height={height} and width={width}: give both, or neither")
    return Picture(size, check_mode(mode), bool(apply_rotation), check_num_threads(num_threads))


def check_matching(match: object, tolerance_s: object, on_error: object) -> Matching:
    """How times are matched with frames; raise ValueError or TypeError for options out of their range."""
    return Matching(check_match(match), check_tolerance(tolerance_s), check_on_error(on_error))


def check_on_error(on_error: object) -> OnError:
    """Return `on_error`; raise ValueError when it is no way to deal with rows that fail."""
    if on_error not in get_args(OnError):
        raise ValueError(f"on_error is {on_error!r}; choose one of {', '.join(map(repr, get_args(OnError)))}")
    return cast(OnError, on_error)
