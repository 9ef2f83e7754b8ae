# SPDX-License-Identifier: Apache-2.0
"""CPU time of interleaved contestants: what a shared machine's noise hits, it hits alike."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Work = TypeVar("Work")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Cost:
    """What one piece of work took; `cpu_s` counts all threads, and child processes that have ended."""

    cpu_s: float
    wall_s: float


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measured(work: Callable[[], Result]) -> tuple[Result, Cost]:
    """Do some work once.

    Args:
        work: Called without arguments.

    Returns:
        What it returned, and what it cost.

    """
    wall_s, cpu_s = time.perf_counter(), _cpu_s()
    result = work()
    return result, Cost(_cpu_s() - cpu_s, time.perf_counter() - wall_s)


def interleaved(
    contestants: Mapping[str, Callable[[Work], tuple[Result, Cost]]],
    rounds: Iterable[Work],
    *,
    check: Callable[[Work, Mapping[str, Result]], None] | None = None,
) -> dict[str, list[Cost]]:
    """Let every contestant do each round's work, one after the other, a different one first in every round.

    Args:
        contestants: What does the work and measures it, by name.
        rounds: The work of each round.
        check: Called after each round with all its results; without it they are dropped at once.

    Returns:
        For every contestant its cost of each round.

    """
    costs: dict[str, list[Cost]] = {name: [] for name in contestants}
    names = list(contestants)
    for turn, work in enumerate(rounds):
        first = turn % len(names)
        results: dict[str, Result] = {}
        for name in names[first:] + names[:first]:
            result, cost = contestants[name](work)
            costs[name].append(cost)
            if check is not None:
                results[name] = result
            del result
        if check is not None:
            check(work, results)
    return costs


def median_cpu_ms(costs: Sequence[Cost]) -> float:
    """Take the median CPU time of some rounds, in milliseconds."""
    return 1e3 * median(cost.cpu_s for cost in costs)


def median_wall_ms(costs: Sequence[Cost]) -> float:
    """Take the median wall-clock time of some rounds, in milliseconds."""
    return 1e3 * median(cost.wall_s for cost in costs)


def cpu_ratio(costs: Sequence[Cost], of: Sequence[Cost]) -> float:
    """Compare two contestants round by round, so that a slow moment of the machine cancels out.

    Args:
        costs: Rounds of the contestant that is compared.
        of: The same rounds of the one it is compared with.

    Returns:
        The median over the rounds of CPU time / CPU time; above 1 when `costs` are the higher ones.

    """
    return median(cost.cpu_s / other.cpu_s for cost, other in zip(costs, of, strict=True))
