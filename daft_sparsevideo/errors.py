# SPDX-License-Identifier: Apache-2.0
"""What can go wrong. Every class is also the builtin a caller would expect, so `except FileNotFoundError` works too."""

from __future__ import annotations


class SparseVideoError(Exception):
    """Base of all errors of this package.

    Args:
        message: What happened, to which shard, and what to do about it.
        shard: Name of the shard, or None where no single shard is to blame.
        time_s: Seconds asked for (`offset + timestamp`), or None where no time was asked for.

    >>> error = ShardNotFoundError("no such file: top.mp4", shard="top.mp4", time_s=1.5)
    >>> isinstance(error, FileNotFoundError), error.shard, error.time_s
    (True, 'top.mp4', 1.5)
    """

    shard: str | None = None
    time_s: float | None = None

    def __init__(self, message: str, *, shard: str | None = None, time_s: float | None = None) -> None:
        super().__init__(message)
        if shard is not None:
            self.shard = shard
        if time_s is not None:
            self.time_s = time_s


class ShardNotFoundError(SparseVideoError, FileNotFoundError):
    """There is no file at the shard's path."""


class ShardReadError(SparseVideoError, OSError):
    """The shard's bytes cannot be read, or changed after they were indexed."""


class ShardWriteError(SparseVideoError, OSError):
    """A shard cannot be written: no such folder, no right, no space."""


class GateError(SparseVideoError, ValueError):
    """A shard that was written is not what was asked for: frames, times, closures or quality."""


class ShardFormatError(SparseVideoError, ValueError):
    """The shard is not a video, has no video stream, or its container or codec is not supported."""


class FrameOutOfRangeError(SparseVideoError, IndexError):
    """A frame number or a time lies outside the shard."""


class FrameDecodeError(SparseVideoError, ValueError):
    """The frame's pictures are damaged: no exact pixels can be had."""


class WindowLengthError(SparseVideoError, ValueError):
    """A row has another number of timestamps than its window has frames."""


class IndexFileError(SparseVideoError, ValueError):
    """An index file is damaged, or was made of another file or by another version."""


class IndexFileWarning(UserWarning):
    """An index file that was found beside a shard is not believed; the shard is indexed anew."""
