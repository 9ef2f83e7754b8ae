# SPDX-License-Identifier: Apache-2.0
"""How much faster two cores are than one: random rows of eight shards in a Daft query.

Run it as `python -m benchmarks.two_cores DATASET... [--rows 512] [--rounds 5]`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks import targets
from benchmarks.report import print_table, print_verdicts, write_results
from benchmarks.robot_dataset import read_robot_dataset

METHOD = """
Eight shards (copies of the dataset's, as many as it takes), random rows of all of them, decode_frames with its default
options, in a process that may use one processor or two. Each process makes the query once to warm up and then
--rounds times; wall time is the median. The two kinds of process run one after the other, so other work on the machine
shows in the ratio.
"""

SHARDS = 8


def _measure(shards: list[str], processors: int, rows: int, rounds: int) -> float:
    command = [sys.executable, "-m", "benchmarks.two_cores", "--measure"]
    told = json.dumps({"shards": shards, "processors": processors, "rows": rows, "rounds": rounds})
    done = subprocess.run(command, input=told, capture_output=True, text=True, check=True)  # noqa: S603 - ourselves
    return float(done.stdout.splitlines()[-1])


def _measure_here() -> None:
    told: dict[str, Any] = json.load(sys.stdin)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: told["processors"]])  # before Daft counts them
    import daft
    from daft import col

    project = import_module("daft_sparsevideo")
    daft.set_runner_native()
    chance = np.random.default_rng(1)
    shards = [told["shards"][i] for i in chance.integers(0, SHARDS, told["rows"])]
    lengths = {shard: len(project.VideoDecoder(shard)) for shard in told["shards"]}
    seconds = [float(chance.integers(0, lengths[shard])) / 30 for shard in shards]
    walls = []
    for _ in range(1 + told["rounds"]):
        frame = project.decode_frames(col("shard"), 0.0, col("seconds"), height=240, width=320)
        query = daft.from_pydict({"shard": shards, "seconds": seconds}).into_batches(128).select(frame)
        begin = time.perf_counter()
        query.collect()
        walls.append(time.perf_counter() - begin)
    print(median(walls[1:]))


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("datasets", nargs="*", metavar="DATASET", help="folder of a LeRobot v3 dataset")
    parser.add_argument("--rows", type=int, default=512, help="rows of the query (default: 512)")
    parser.add_argument("--rounds", type=int, default=5, help="queries of one process (default: 5)")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure, print and keep the figures."""
    options = _parsed()
    if options.measure:
        _measure_here()
        return
    verdicts: list[targets.Verdict] = []
    figures: dict[str, Any] = {}
    for root in options.datasets:
        dataset = read_robot_dataset(root)
        originals = sorted({str(shard) for episode in dataset.episodes for shard in episode.shards.values()})
        with TemporaryDirectory() as scratch:
            shards = [
                str(shutil.copy(originals[i % len(originals)], Path(scratch) / f"{i}.mp4")) for i in range(SHARDS)
            ]
            walls = {n: _measure(shards, n, options.rows, options.rounds) for n in (1, 2)}
        print_table(
            f"{dataset.name}: {options.rows} random rows of {SHARDS} shards",
            ["wall s"],
            [(f"{n} processor{'s' if n > 1 else ''}", [f"{wall:.2f}"]) for n, wall in walls.items()],
        )
        verdicts.append(targets.Verdict(dataset.name, targets.TWO_CORES, walls[1] / walls[2]))
        figures[dataset.name] = {"wall_s": {str(n): round(wall, 3) for n, wall in walls.items()}}
    print_verdicts(verdicts)
    write_results("two_cores", method=METHOD, options=options, figures=figures, verdicts=verdicts)


if __name__ == "__main__":
    main()
