# SPDX-License-Identifier: Apache-2.0
"""How many decoder threads this process may run, whoever asks for them."""

from __future__ import annotations

from daft_sparsevideo import _core


def set_thread_budget(threads: int) -> None:
    """Bound the decoders that work at once in this process, over all queries and `VideoDecoder`s together.

    Pixels are the same for any number.

    Args:
        threads: At least 1, or 0 (the value at start) for the processors that this process may use.

    Raises:
        ValueError: `threads` is negative.

    Example:
        >>> set_thread_budget(2)
        >>> thread_budget()
        2
        >>> set_thread_budget(0)

    """
    if threads < 0:
        raise ValueError(f"threads is {threads}; it must be at least 1, or 0 for all processors")
    _core.set_thread_budget(threads)


def thread_budget() -> int:
    """Return the bound that `set_thread_budget` set.

    Returns:
        Decoders that may work at once.

    Example:
        >>> thread_budget() >= 1
        True

    """
    return _core.thread_budget()
