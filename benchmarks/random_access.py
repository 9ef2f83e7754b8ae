# SPDX-License-Identifier: Apache-2.0
"""Random access to frames of robot video: the project's decoder and its peers, side by side.

Run it as `python -m benchmarks.random_access DATASET... [--threads 1] [--batches 8] [--patterns random,window]`.
"""

from __future__ import annotations

import argparse
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks import targets
from benchmarks.cpu_clock import Cost, cpu_ratio, interleaved, median_cpu_ms, median_wall_ms
from benchmarks.frame_readers import PROJECT, PYAV, READERS, TORCHCODEC_EXACT
from benchmarks.reader_process import Digests, ReaderProcess
from benchmarks.report import print_table, print_verdicts, write_results
from benchmarks.request_patterns import PATTERNS, Batch, batches
from benchmarks.robot_dataset import RobotDataset, read_robot_dataset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

METHOD = """
One batch asks some frames of one episode from each of its cameras, and is done by every reader in turn, a different
one first in each batch; every reader has a process of its own. CPU time is that of all its threads, conversion to RGB
included. cold: the batch opens its shards anew, and VideoDecoder makes their indexes anew (files are in the page
cache, imports are done); warm: readers stay open between batches. Times are medians over the batches; a ratio is the
median over the batches of CPU time / CPU time of VideoDecoder in the same batch. Every frame is compared with PyAV's,
outside the clock.
"""


@dataclass(frozen=True)
class PatternCosts:
    """What the batches of one pattern took, by reader, and how many of its frames were not PyAV's."""

    cold: dict[str, list[Cost]]
    warm: dict[str, list[Cost]]
    differing_frames: Counter[str]


def measure_pattern(readers: Sequence[ReaderProcess], asked: Sequence[Batch]) -> PatternCosts:
    """Let every reader do the same batches, cold and warm.

    Args:
        readers: The contestants; PyAV must be among them to be compared with.
        asked: The batches.

    Returns:
        The cost of every batch.

    """
    differing: Counter[str] = Counter()

    def compare(_: Batch, results: Mapping[str, Digests]) -> None:
        for name, digests in results.items():
            right = results.get(PYAV, digests)
            differing[name] += sum(found != wanted for found, wanted in zip(digests, right, strict=True))

    cold = interleaved({reader.name: reader.cold for reader in readers}, asked, check=compare)
    warm = {reader.name: reader.warm for reader in readers}
    interleaved(warm, asked[:1])
    return PatternCosts(cold=cold, warm=interleaved(warm, asked, check=compare), differing_frames=differing)


def _verdicts(dataset: RobotDataset, measured: Mapping[str, PatternCosts]) -> list[targets.Verdict]:
    if dataset.codec not in targets.SPARSE_CODECS:
        return []
    verdicts = []
    for pattern, costs in measured.items():
        promised = {TORCHCODEC_EXACT: targets.SPARSE_OVER_TORCHCODEC, PYAV: targets.SPARSE_OVER_PYAV}
        if pattern == "window":
            promised = {TORCHCODEC_EXACT: targets.WINDOW_OVER_TORCHCODEC}
        for peer, target in promised.items():
            if peer in costs.cold and PROJECT in costs.cold:
                ratio = cpu_ratio(costs.cold[peer], costs.cold[PROJECT])
                verdicts.append(targets.Verdict(f"{dataset.name} {pattern}", target, ratio))
    return verdicts


def _cell(rounds: Mapping[str, list[Cost]], name: str) -> str:
    ratio = f" ({cpu_ratio(rounds[name], rounds[PROJECT]):.2f}x)" if PROJECT in rounds else ""
    return f"{median_cpu_ms(rounds[name]):.0f}{ratio}"


def _figures(costs: PatternCosts) -> dict[str, Any]:
    readers: dict[str, dict[str, Any]] = {}
    for name in costs.cold:
        readers[name] = {"frames_unlike_pyav": costs.differing_frames[name]}
        for temperature, rounds in (("cold", costs.cold), ("warm", costs.warm)):
            readers[name][temperature] = {
                "cpu_ms": round(median_cpu_ms(rounds[name]), 1),
                "wall_ms": round(median_wall_ms(rounds[name]), 1),
                "cpu_ratio": round(cpu_ratio(rounds[name], rounds[PROJECT]), 3) if PROJECT in rounds else None,
                "cpu_ms_of_each_batch": [round(1e3 * cost.cpu_s, 1) for cost in rounds[name]],
            }
    return readers


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("datasets", nargs="+", metavar="DATASET", help="folder of a LeRobot v3 dataset")
    parser.add_argument("--threads", type=int, default=1, help="decoder threads of one reader (default: 1)")
    parser.add_argument("--batches", type=int, default=8, help="batches of a pattern (default: 8)")
    parser.add_argument("--patterns", default=",".join(PATTERNS), help="which patterns (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="fixes which frames are asked (default: 1)")
    return parser.parse_args()


def measure_dataset(
    dataset: RobotDataset, patterns: Sequence[str], *, num_batches: int, num_threads: int, seed: int
) -> tuple[dict[str, PatternCosts], dict[str, str]]:
    """Measure all readers that can decode a dataset.

    Args:
        dataset: Whose frames are asked.
        patterns: Keys of `PATTERNS`.
        num_batches: Batches of each pattern.
        num_threads: Decoder threads of one reader.
        seed: Fixes which frames are asked.

    Returns:
        The costs of every pattern, and for every reader that was left out the reason.

    """
    left_out: dict[str, str] = {}
    with ExitStack() as processes:
        readers = []
        for name in READERS:
            reader = processes.enter_context(ReaderProcess(name, fps=dataset.fps, num_threads=num_threads))
            failure = reader.failure(dataset.shards[0])
            if failure is None:
                readers.append(reader)
            else:
                left_out[name] = failure
                print(f"left out for {dataset.name}: {name} ({failure})")
        measured = {
            pattern: measure_pattern(readers, batches(dataset, pattern, num_batches, seed=seed)) for pattern in patterns
        }
    return measured, left_out


def main() -> None:
    """Measure, print and keep the figures."""
    options = _parsed()
    figures: dict[str, Any] = {}
    verdicts: list[targets.Verdict] = []
    for root in options.datasets:
        dataset = read_robot_dataset(root)
        measured, left_out = measure_dataset(
            dataset,
            options.patterns.split(","),
            num_batches=options.batches,
            num_threads=options.threads,
            seed=options.seed,
        )
        readers = [name for name in READERS if name not in left_out]
        for temperature in ("cold", "warm"):
            print_table(
                f"{dataset.name} ({dataset.codec}), {options.threads} decoder thread(s): CPU ms of a {temperature} "
                f"batch, median of {options.batches} (times VideoDecoder's)",
                list(measured),
                [(name, [_cell(getattr(costs, temperature), name) for costs in measured.values()]) for name in readers],
            )
        differing = sum((costs.differing_frames for costs in measured.values()), Counter())
        print("  frames unlike PyAV's: " + ", ".join(f"{name} {differing[name]}" for name in readers))
        verdicts += print_verdicts(_verdicts(dataset, measured))
        figures[dataset.name] = {
            "codec": dataset.codec,
            "left_out": left_out,
            "patterns": {pattern: _figures(costs) for pattern, costs in measured.items()},
        }
    write_results("random_access", method=METHOD, options=options, figures=figures, verdicts=verdicts)


if __name__ == "__main__":
    main()
