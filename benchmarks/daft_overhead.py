# SPDX-License-Identifier: Apache-2.0
"""What Daft adds to decoding: `decode_frames` in a query over the same frames through `VideoDecoder`.

Run it as `python -m benchmarks.daft_overhead DATASET... [--threads 1] [--rounds 12]`.
"""

from __future__ import annotations

import argparse
from functools import partial
from importlib import import_module
from statistics import median
from typing import TYPE_CHECKING, Any

import daft
from daft import col

from benchmarks import targets
from benchmarks.cpu_clock import Cost, interleaved, measured, median_cpu_ms
from benchmarks.report import print_table, print_verdicts, write_results
from benchmarks.robot_dataset import RobotDataset, read_robot_dataset

if TYPE_CHECKING:
    from collections.abc import Callable

    from daft import DataFrame, Expression

METHOD = """
The first frames of the first episode's first camera, as many as decode_frames takes in one batch, decoded by a Daft
query over rows in memory until collect() returns, once with an image column of free shape, once of fixed shape and
once without one, and by VideoDecoder.get_frames_at, one after the other, a different one first in each round; shards
are open. Overhead is the median over the rounds of the difference of CPU time, over the frames; what a query costs at
all is part of it.
"""

BATCH_ROWS = 128
"""The batch size of `decode_frames`: one batch, since two would be decoded at the same time and disturb each other."""

DECODER = "VideoDecoder"
ROWS_ALONE = "a query that decodes nothing"


class FirstFrames:
    """The first frames of a dataset's first episode and camera, with and without Daft."""

    def __init__(self, dataset: RobotDataset, num_threads: int) -> None:
        """Choose the frames and open their shard."""
        episode, camera = dataset.episodes[0], dataset.cameras[0]
        self.num_frames = min(BATCH_ROWS, episode.num_frames)
        self._fps = dataset.fps
        self._first_frame = episode.first_frames[camera]
        self._shard = str(episode.shards[camera])
        self._num_threads = num_threads
        self._project = import_module("daft_sparsevideo")
        self._decoder: Any = self._project.VideoDecoder(self._shard, num_threads=num_threads)

    def with_decoder(self, _: int) -> tuple[Any, Cost]:
        """Decode them by number."""
        frames = range(self._first_frame, self._first_frame + self.num_frames)
        return measured(partial(self._decoder.get_frames_at, frames))

    def as_images(self, _: int) -> tuple[DataFrame, Cost]:
        """Decode them by time in a query, into a column of images of any shape."""
        return measured(lambda: self._rows().select(self._image().alias("image")).collect())

    def as_fixed_shape_images(self, _: int) -> tuple[DataFrame, Cost]:
        """Decode them by time in a query, into a column of images of one shape."""
        metadata = self._decoder.metadata
        image = partial(self._image, height=metadata.height, width=metadata.width)
        return measured(lambda: self._rows().select(image().alias("image")).collect())

    def without_images(self, _: int) -> tuple[DataFrame, Cost]:
        """Make a query over the rows that decodes nothing."""
        return measured(lambda: self._rows().select(col("offset_s") + col("timestamp_s")).collect())

    def _rows(self) -> DataFrame:
        return daft.from_pydict(
            {
                "shard": [self._shard] * self.num_frames,
                "offset_s": [self._first_frame / self._fps] * self.num_frames,
                "timestamp_s": [frame / self._fps for frame in range(self.num_frames)],
            }
        )

    def _image(self, **shape: int) -> Expression:
        image: Expression = self._project.decode_frames(
            col("shard"), col("offset_s"), col("timestamp_s"), num_threads=self._num_threads, **shape
        )
        return image


def measure_overhead(frames: FirstFrames, *, rounds: int) -> dict[str, list[Cost]]:
    """Decode the same frames with and without Daft.

    Args:
        frames: The frames.
        rounds: How often.

    Returns:
        The cost of every round by contestant.

    """
    contestants: dict[str, Callable[[int], tuple[Any, Cost]]] = {
        DECODER: frames.with_decoder,
        "image column": frames.as_images,
        "fixed-shape image column": frames.as_fixed_shape_images,
        ROWS_ALONE: frames.without_images,
    }
    interleaved(contestants, [0])
    return interleaved(contestants, range(rounds))


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("datasets", nargs="+", metavar="DATASET", help="folder of a LeRobot v3 dataset")
    parser.add_argument("--threads", type=int, default=1, help="decoder threads (default: 1)")
    parser.add_argument("--rounds", type=int, default=12, help="rounds (default: 12)")
    return parser.parse_args()


def main() -> None:
    """Measure, print and keep the figures."""
    options = _parsed()
    daft.set_runner_native()
    figures: dict[str, Any] = {}
    verdicts: list[targets.Verdict] = []
    for root in options.datasets:
        dataset = read_robot_dataset(root)
        frames = FirstFrames(dataset, options.threads)
        costs = measure_overhead(frames, rounds=options.rounds)
        overhead_us = {
            name: median(1e6 * (cost.cpu_s - alone.cpu_s) for cost, alone in zip(rounds, costs[DECODER], strict=True))
            / frames.num_frames
            for name, rounds in costs.items()
            if name not in (DECODER, ROWS_ALONE)
        }
        print_table(
            f"{dataset.name} ({dataset.codec}): {frames.num_frames} frames in a row, median of {options.rounds} rounds",
            ["CPU ms", "us a frame over VideoDecoder"],
            [
                (name, [f"{median_cpu_ms(rounds):.1f}", f"{overhead_us[name]:.1f}" if name in overhead_us else ""])
                for name, rounds in costs.items()
            ],
        )
        verdicts += print_verdicts(
            [
                targets.Verdict(f"{dataset.name}, {name}", targets.DAFT_OVERHEAD, value / 1000)
                for name, value in overhead_us.items()
            ]
        )
        figures[dataset.name] = {
            "frames": frames.num_frames,
            "cpu_ms": {name: round(median_cpu_ms(rounds), 1) for name, rounds in costs.items()},
            "overhead_us_per_frame": {name: round(value, 2) for name, value in overhead_us.items()},
        }
    write_results("daft_overhead", method=METHOD, options=options, figures=figures, verdicts=verdicts)


if __name__ == "__main__":
    main()
