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

from benchmarks.cpu_clock import Cost, interleaved, measured, median_cpu_ms
from benchmarks.report import print_table, write_results
from benchmarks.robot_dataset import RobotDataset, read_robot_dataset

if TYPE_CHECKING:
    from collections.abc import Callable

    from daft import DataFrame

METHOD = """
The first frames of the first episode's first camera, decoded by a Daft query over rows in memory until collect()
returns, once with an image column of free shape and once of fixed shape, and by VideoDecoder.get_frames_at in batches
of the same size, one after the other, a different one first in each round; shards are open. Overhead is the median
over the rounds of the difference of CPU time, over the frames.
"""

BATCH_ROWS = 128
"""The batch size of `decode_frames`."""

ROWS = 2 * BATCH_ROWS

DECODER = "VideoDecoder"


class FirstFrames:
    """The first frames of a dataset's first episode and camera, with and without Daft."""

    def __init__(self, dataset: RobotDataset, num_threads: int) -> None:
        """Choose the frames and open their shard."""
        episode, camera = dataset.episodes[0], dataset.cameras[0]
        self.num_frames = min(ROWS, episode.num_frames)
        self._fps = dataset.fps
        self._first_frame = episode.first_frames[camera]
        self._shard = str(episode.shards[camera])
        self._num_threads = num_threads
        self._project = import_module("daft_sparsevideo")
        self._decoder: Any = self._project.VideoDecoder(self._shard, num_threads=num_threads)

    def with_decoder(self, _: int) -> tuple[list[Any], Cost]:
        """Decode them by number, a batch at a time."""
        stop = self._first_frame + self.num_frames
        batches = [range(start, min(start + BATCH_ROWS, stop)) for start in range(self._first_frame, stop, BATCH_ROWS)]
        return measured(lambda: [self._decoder.get_frames_at(batch) for batch in batches])

    def as_images(self, _: int) -> tuple[DataFrame, Cost]:
        """Decode them by time in a query, into a column of images of any shape."""
        return measured(self._query)

    def as_fixed_shape_images(self, _: int) -> tuple[DataFrame, Cost]:
        """Decode them by time in a query, into a column of images of one shape."""
        metadata = self._decoder.metadata
        return measured(partial(self._query, height=metadata.height, width=metadata.width))

    def _query(self, **shape: int) -> DataFrame:
        rows = daft.from_pydict(
            {
                "shard": [self._shard] * self.num_frames,
                "offset_s": [self._first_frame / self._fps] * self.num_frames,
                "timestamp_s": [frame / self._fps for frame in range(self.num_frames)],
            }
        )
        image = self._project.decode_frames(
            col("shard"), col("offset_s"), col("timestamp_s"), num_threads=self._num_threads, **shape
        )
        return rows.into_batches(BATCH_ROWS).select(image.alias("image")).collect()


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
    for root in options.datasets:
        dataset = read_robot_dataset(root)
        frames = FirstFrames(dataset, options.threads)
        costs = measure_overhead(frames, rounds=options.rounds)
        overhead_us = {
            name: median(1e6 * (cost.cpu_s - alone.cpu_s) for cost, alone in zip(rounds, costs[DECODER], strict=True))
            / frames.num_frames
            for name, rounds in costs.items()
        }
        print_table(
            f"{dataset.name} ({dataset.codec}): {frames.num_frames} frames in a row, median of {options.rounds} rounds",
            ["CPU ms", "us a frame over VideoDecoder"],
            [(name, [f"{median_cpu_ms(rounds):.0f}", f"{overhead_us[name]:.1f}"]) for name, rounds in costs.items()],
        )
        figures[dataset.name] = {
            "frames": frames.num_frames,
            "cpu_ms": {name: round(median_cpu_ms(rounds), 1) for name, rounds in costs.items()},
            "overhead_us_per_frame": {name: round(value, 2) for name, value in overhead_us.items()},
        }
    write_results("daft_overhead", method=METHOD, options=options, figures=figures, verdicts=[])


if __name__ == "__main__":
    main()
