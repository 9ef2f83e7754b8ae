# SPDX-License-Identifier: Apache-2.0
"""The four ways in which training and curation ask one episode for frames."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.robot_dataset import Episode, RobotDataset

RANDOM_FRAMES = 16
WINDOW_FRAMES = 10
STRIDE_FRAMES = 30
ANCHORS = 4
ANCHOR_DELTAS = (-30, -15, -6, 0)
"""LeRobot's delta_timestamps of -1, -0.5, -0.2 and 0 s at 30 frames a second."""


def _random(num_frames: int, chance: random.Random) -> list[int]:
    return sorted(chance.sample(range(num_frames), min(RANDOM_FRAMES, num_frames)))


def _stride(num_frames: int, chance: random.Random) -> list[int]:
    return list(range(chance.randrange(min(STRIDE_FRAMES, num_frames)), num_frames, STRIDE_FRAMES))


def _window(num_frames: int, chance: random.Random) -> list[int]:
    length = min(WINDOW_FRAMES, num_frames)
    start = chance.randrange(num_frames - length + 1)
    return list(range(start, start + length))


def _multi(num_frames: int, chance: random.Random) -> list[int]:
    anchors = chance.sample(range(num_frames), min(ANCHORS, num_frames))
    return sorted({max(0, anchor + delta) for anchor in anchors for delta in ANCHOR_DELTAS})


PATTERNS: dict[str, Callable[[int, random.Random], list[int]]] = {
    "random": _random,
    "stride": _stride,
    "window": _window,
    "multi": _multi,
}


@dataclass(frozen=True)
class Batch:
    """Some frames of one episode, asked of every camera at once; frames count from the episode's first."""

    episode: Episode
    frames: tuple[int, ...]

    def shard_frames(self) -> list[tuple[Path, list[int]]]:
        """For every camera its shard, and which of the shard's frames are asked."""
        return [
            (shard, [self.episode.first_frames[camera] + frame for frame in self.frames])
            for camera, shard in self.episode.shards.items()
        ]


def batches(dataset: RobotDataset, pattern: str, count: int, *, seed: int) -> list[Batch]:
    """Draw the batches of one pattern, the same ones for the same seed.

    Args:
        dataset: Whose episodes are asked.
        pattern: A key of `PATTERNS`.
        count: How many batches.
        seed: Fixes the episodes and the frames.

    Returns:
        `count` batches, each with its frames in ascending order and none twice.

    """
    chance = random.Random(f"{pattern} {seed}")
    drawn = []
    for _ in range(count):
        episode = chance.choice(dataset.episodes)
        drawn.append(Batch(episode, tuple(PATTERNS[pattern](episode.num_frames, chance))))
    return drawn
