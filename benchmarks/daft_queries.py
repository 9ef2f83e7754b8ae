# SPDX-License-Identifier: Apache-2.0
"""Image columns of a Daft query: `daft_sparsevideo.lerobot` beside Daft's own LeRobot reader, on the same rows.

Run it as `python -m benchmarks.daft_queries DATASET... [--threads 1] [--queries 8]`.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import daft
import numpy as np
from daft import col
from daft.datasets import lerobot as daft_lerobot

from benchmarks import targets
from benchmarks.cpu_clock import Cost, cpu_ratio, interleaved, measured, median_cpu_ms, median_wall_ms
from benchmarks.frame_readers import forget_shards, remember_shards
from benchmarks.report import print_table, print_verdicts, write_results
from benchmarks.robot_dataset import RobotDataset, read_robot_dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daft import DataFrame

METHOD = """
Every query is read(load_video_frames=True).where(index is one of the rows asked for): it reads the dataset's tables,
joins them and decodes all cameras of each row. It is done by Daft's reader, by this project's, by this project's with
the shards that earlier queries left open, and, as the part that all share, without any image; one after the other, a
different one first in each round. CPU time is that of all threads of the process until collect() returns. Times are
medians over the queries; a ratio is the median over the queries of CPU time / CPU time of this project's reader (shards
and indexes forgotten before) in the same query. Images are compared outside the clock. A shuffled epoch is all rows in
random order, 64 a query, one reader after the other with its shards open; its ratio is that of the sums.
"""

DAFT_READER = "daft.datasets.lerobot"
PROJECT = "daft_sparsevideo.lerobot"
PROJECT_OPEN = "the same, shards open"
PROJECT_ANCHORS = "the same, shards open, anchor cache"
ROWS_ALONE = "the rows alone"

Rows = list[int]
"""Rows of a dataset by their `index`."""

EPOCH_ROWS = 64
ANCHOR_BYTES = 2 << 30


def _episode_rows(dataset: RobotDataset, chance: random.Random) -> range:
    place = chance.randrange(len(dataset.episodes))
    start = sum(episode.num_frames for episode in dataset.episodes[:place])
    return range(start, start + dataset.episodes[place].num_frames)


def _random_rows(rows: range, count: int, chance: random.Random) -> Rows:
    return sorted(chance.sample(rows, min(count, len(rows))))


def _consecutive_rows(rows: range, count: int, chance: random.Random) -> Rows:
    length = min(count, len(rows))
    start = chance.randrange(len(rows) - length + 1)
    return list(rows[start : start + length])


@dataclass(frozen=True)
class RowChoice:
    """A way to choose rows of a dataset, and what is promised for it."""

    choose: Callable[[RobotDataset, random.Random], Rows]
    target: targets.Target


ROW_CHOICES = {
    "16 random of an episode": RowChoice(
        lambda dataset, chance: _random_rows(_episode_rows(dataset, chance), 16, chance), targets.RANDOM_ROWS
    ),
    "64 random of all": RowChoice(
        lambda dataset, chance: _random_rows(range(dataset.num_frames), 64, chance), targets.RANDOM_ROWS
    ),
    "256 random of all": RowChoice(
        lambda dataset, chance: _random_rows(range(dataset.num_frames), 256, chance), targets.RANDOM_ROWS
    ),
    "10 consecutive": RowChoice(
        lambda dataset, chance: _consecutive_rows(_episode_rows(dataset, chance), 10, chance), targets.CONSECUTIVE_ROWS
    ),
    "128 consecutive": RowChoice(
        lambda dataset, chance: _consecutive_rows(_episode_rows(dataset, chance), 128, chance), targets.CONSECUTIVE_ROWS
    ),
}


class DatasetQueries:
    """The same rows of one dataset by different means; every method returns them collected."""

    def __init__(self, dataset: RobotDataset, num_threads: int) -> None:
        """Take a dataset, and how many decoder threads this project may use."""
        self._dataset = dataset
        self._uri = str(dataset.root)
        self._num_threads = num_threads

    def with_daft_reader(self, rows: Rows) -> DataFrame:
        """Let Daft's LeRobot reader decode the images."""
        frames = daft_lerobot.read(self._uri, load_video_frames=True).where(col("index").is_in(rows))
        return frames.select("index", *self._dataset.cameras).collect()

    def with_project(self, rows: Rows) -> DataFrame:
        """Let this project's reader decode the images."""
        lerobot = import_module("daft_sparsevideo.lerobot")
        frames = lerobot.read(self._uri, load_video_frames=True, num_threads=self._num_threads)
        collected: DataFrame = frames.where(col("index").is_in(rows)).select("index", *self._dataset.cameras).collect()
        return collected

    def without_images(self, rows: Rows) -> DataFrame:
        """Leave the images away."""
        offsets_s = [f"videos/{camera}/from_timestamp" for camera in self._dataset.cameras]
        return self._rows(rows).select("index", "timestamp", *offsets_s).collect()

    def _rows(self, rows: Rows) -> DataFrame:
        episodes = daft_lerobot.read_episodes(self._uri, include_video_metadata=True)
        return daft_lerobot.load_episode_frames(episodes, self._uri).where(col("index").is_in(rows))


def _images(collected: DataFrame, cameras: tuple[str, ...]) -> dict[tuple[int, str], Any]:
    columns = collected.to_pydict()
    return {
        (row, camera): np.asarray(columns[camera][place])
        for place, row in enumerate(columns["index"])
        for camera in cameras
    }


def measure_queries(
    dataset: RobotDataset, asked: list[Rows], *, num_threads: int
) -> tuple[dict[str, list[Cost]], Counter[str]]:
    """Let Daft's reader and this project's do the same queries.

    Args:
        dataset: Whose rows are asked.
        asked: The rows of each query.
        num_threads: Decoder threads of this project.

    Returns:
        The cost of every query by contestant, and how many images were "compared" and how many were "different".

    """
    queries = DatasetQueries(dataset, num_threads)

    def forgetting(rows: Rows) -> tuple[DataFrame, Cost]:
        forget_shards()
        return measured(partial(queries.with_project, rows))

    def remembering(rows: Rows) -> tuple[DataFrame, Cost]:
        remember_shards(dataset.shards)
        return measured(partial(queries.with_project, rows))

    contestants: dict[str, Callable[[Rows], tuple[DataFrame, Cost]]] = {
        DAFT_READER: lambda rows: measured(partial(queries.with_daft_reader, rows)),
        PROJECT: forgetting,
        PROJECT_OPEN: remembering,
        ROWS_ALONE: lambda rows: measured(partial(queries.without_images, rows)),
    }
    try:
        queries.with_project(asked[0])
    except Exception as error:  # noqa: BLE001 - not installed, or its codec not supported; the report says which
        print(f"left out for {dataset.name}: {PROJECT} ({type(error).__name__}: {str(error)[:120]})")
        del contestants[PROJECT], contestants[PROJECT_OPEN]
    images: Counter[str] = Counter()

    def compare(rows: Rows, results: Mapping[str, DataFrame]) -> None:
        places = [(row, camera) for row in rows for camera in dataset.cameras]
        right = _images(results[DAFT_READER], dataset.cameras)
        for name in (PROJECT, PROJECT_OPEN):
            if name in results:
                found = _images(results[name], dataset.cameras)
                images["compared"] += len(places)
                images["different"] += sum(not np.array_equal(found[place], right[place]) for place in places)

    interleaved(contestants, asked[:1])
    return interleaved(contestants, asked, check=compare), images


def measure_epoch(dataset: RobotDataset, *, num_threads: int, seed: int) -> dict[str, float]:
    """Let each reader go through all rows in random order, `EPOCH_ROWS` a query.

    Args:
        dataset: Whose rows are asked.
        num_threads: Decoder threads of this project.
        seed: Fixes the order.

    Returns:
        CPU seconds of the epoch by contestant.

    """
    project = import_module("daft_sparsevideo")
    queries = DatasetQueries(dataset, num_threads)
    order = list(range(dataset.num_frames))
    random.Random(seed).shuffle(order)
    asked = [order[begin : begin + EPOCH_ROWS] for begin in range(0, len(order), EPOCH_ROWS)]
    contestants = {
        DAFT_READER: (0, queries.with_daft_reader),
        PROJECT_OPEN: (0, queries.with_project),
        PROJECT_ANCHORS: (ANCHOR_BYTES, queries.with_project),
    }
    cpu_s = {}
    for name, (anchor_bytes, read) in contestants.items():
        remember_shards(dataset.shards)
        project.set_anchor_cache(anchor_bytes)
        cpu_s[name] = sum(measured(partial(read, rows))[1].cpu_s for rows in asked)
        project.set_anchor_cache(0)
    return cpu_s


def _cell(costs: Mapping[str, list[Cost]], name: str) -> str:
    ratio = f" ({cpu_ratio(costs[name], costs[PROJECT]):.2f}x)" if PROJECT in costs else ""
    return f"{median_cpu_ms(costs[name]):.0f}{ratio}"


def _figures(costs: Mapping[str, list[Cost]], images: Counter[str]) -> dict[str, Any]:
    contestants = {
        name: {
            "cpu_ms": round(median_cpu_ms(rounds), 1),
            "wall_ms": round(median_wall_ms(rounds), 1),
            "cpu_ratio": round(cpu_ratio(rounds, costs[PROJECT]), 3) if PROJECT in costs else None,
            "cpu_ms_of_each_query": [round(1e3 * cost.cpu_s, 1) for cost in rounds],
        }
        for name, rounds in costs.items()
    }
    return {"images_compared": images["compared"], "images_different": images["different"], "contestants": contestants}


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("datasets", nargs="+", metavar="DATASET", help="folder of a LeRobot v3 dataset")
    parser.add_argument("--threads", type=int, default=1, help="decoder threads of this project (default: 1)")
    parser.add_argument("--queries", type=int, default=8, help="queries of a row choice (default: 8)")
    parser.add_argument("--seed", type=int, default=1, help="fixes which rows are asked (default: 1)")
    return parser.parse_args()


def main() -> None:
    """Measure, print and keep the figures."""
    options = _parsed()
    daft.set_runner_native()
    figures: dict[str, Any] = {}
    verdicts: list[targets.Verdict] = []
    for root in options.datasets:
        dataset = read_robot_dataset(root)
        measured = {}
        for name, choice in ROW_CHOICES.items():
            chance = random.Random(f"{name} {options.seed}")
            asked = [choice.choose(dataset, chance) for _ in range(options.queries)]
            measured[name] = measure_queries(dataset, asked, num_threads=options.threads)
        print_table(
            f"{dataset.name} ({dataset.codec}): CPU ms of a query, median of {options.queries} (times this project's)",
            list(measured),
            [
                (contestant, [_cell(costs, contestant) for costs, _ in measured.values()])
                for contestant in next(iter(measured.values()))[0]
            ],
        )
        images = sum((images for _, images in measured.values()), Counter())
        print(f"  images unlike those of Daft's reader: {images['different']} of {images['compared']}")
        if dataset.codec in targets.SPARSE_CODECS:
            verdicts += print_verdicts(
                [
                    targets.Verdict(
                        f"{dataset.name} {name}",
                        ROW_CHOICES[name].target,
                        cpu_ratio(costs[DAFT_READER], costs[PROJECT]),
                    )
                    for name, (costs, _) in measured.items()
                    if PROJECT in costs
                ]
            )
            epoch = measure_epoch(dataset, num_threads=options.threads, seed=options.seed)
            print_table(
                f"{dataset.name} ({dataset.codec}): a shuffled epoch, {EPOCH_ROWS} rows a query",
                ["CPU s", "ratio"],
                [(name, [f"{cpu_s:.1f}", f"{epoch[DAFT_READER] / cpu_s:.2f}x"]) for name, cpu_s in epoch.items()],
            )
            verdicts += print_verdicts(
                [
                    targets.Verdict(f"{dataset.name}, {name}", targets.SHUFFLED_ROWS, epoch[DAFT_READER] / epoch[name])
                    for name in (PROJECT_OPEN, PROJECT_ANCHORS)
                ]
            )
        figures[dataset.name] = {name: _figures(costs, images) for name, (costs, images) in measured.items()}
    write_results("daft_queries", method=METHOD, options=options, figures=figures, verdicts=verdicts)


if __name__ == "__main__":
    main()
