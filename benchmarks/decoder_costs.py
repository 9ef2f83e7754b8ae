# SPDX-License-Identifier: Apache-2.0
"""What the sparse decoder's own parts cost, and how near it comes to the least that its frames can cost.

Run it as `python -m benchmarks.decoder_costs DATASET... [--batches 8]`.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from benchmarks import targets
from benchmarks.cpu_clock import measured
from benchmarks.report import print_table, print_verdicts, write_results
from benchmarks.request_patterns import PATTERNS, batches
from benchmarks.robot_dataset import RobotDataset, read_robot_dataset

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

METHOD = """
One decoder thread, CPU time of all threads of the process, files in the page cache, shards open unless said. index
pass: opening a shard with nothing cached, per picture, median of the openings. cached open: making a VideoDecoder on
a shard whose index the process holds, median. convert: what all frames of a closure cost more than the few that asked
for it, per frame more, median over closures. full decode: the shard's frames in order, a chunk at a time, less their
conversions, per picture reconstructed, least of three passes; how it is spread over single pictures comes from PyAV
decoding packet by packet with one thread, since pictures that others refer to cost more than the rest. limit: the
closure's pictures at that price plus the targets' conversions, over the CPU time that VideoDecoder used for them,
median over the batches. state-only: the index pass over a full decode, per picture; the pass sends every whole packet
as state-only, and its time includes reading the container, so this is the most that a state-only picture can cost.
"""

CHUNK_FRAMES = 256


@dataclass(frozen=True)
class ShardCosts:
    """The prices of one shard in seconds of CPU time."""

    index_pass_s: float
    cached_open_s: float
    convert_s: float
    decode_s: float
    picture_s: npt.NDArray[np.float64]
    """The price of every picture, in decode order."""

    @property
    def state_only_percent(self) -> float:
        """The most that a state-only picture costs, of a full decode of it."""
        return 100 * self.index_pass_s / self.decode_s

    def limit_s(self, closure: npt.NDArray[np.int32], num_targets: int) -> float:
        """Tell the least that some targets can cost: their closure decoded, and they converted."""
        return float(self.picture_s[closure].sum()) + num_targets * self.convert_s


class MeasuredShard:
    """One shard on the bench: its index and plans from the core, its frames from a `VideoDecoder`."""

    def __init__(self, path: Path) -> None:
        """Open the shard, and decode a little of it so that everything is warm."""
        self.path = path
        self._project = import_module("daft_sparsevideo")
        self._core = import_module("daft_sparsevideo._core")
        self._shard: Any = self._core.Shard(str(path))
        self._decoder: Any = self._project.VideoDecoder(str(path), num_threads=1)
        self.num_frames: int = self._shard.index.num_frames
        self.num_pictures: int = self._shard.index.num_pictures
        self.cpu_s(range(min(CHUNK_FRAMES, self.num_frames)))

    def closure(self, frames: Sequence[int]) -> npt.NDArray[np.int32]:
        """Tell which pictures must be reconstructed for some frames."""
        closure: npt.NDArray[np.int32] = self._shard.plan(np.asarray(frames, np.int64)).closure
        return closure

    def frames_of(self, closure: npt.NDArray[np.int32]) -> list[int]:
        """Tell which frames the pictures of a closure show."""
        return np.flatnonzero(np.isin(self._shard.index.frame_picture, closure)).tolist()

    def cpu_s(self, frames: Sequence[int]) -> float:
        """Decode some frames and tell the CPU time it took."""
        return measured(partial(self._decoder.get_frames_at, frames))[1].cpu_s

    def costs(self, asked: Sequence[Sequence[int]], *, repeats: int) -> ShardCosts:
        """Measure the prices of this shard.

        Args:
            asked: Sets of frames, on whose closures the conversion is measured.
            repeats: How often the shard is opened.

        Returns:
            The prices.

        """
        convert_s = median(self._convert_s(frames) for frames in asked)
        chunks = [
            range(self.num_frames)[start : start + CHUNK_FRAMES] for start in range(0, self.num_frames, CHUNK_FRAMES)
        ]
        closures = [self.closure(chunk) for chunk in chunks]
        decoding_s = min(sum(map(self.cpu_s, chunks)) for _ in range(3)) - convert_s * self.num_frames
        weights = _picture_weights(self.path, self.num_pictures)
        return ShardCosts(
            index_pass_s=self._opening_s(self._core.Shard, repeats) / self.num_pictures,
            cached_open_s=self._opening_s(partial(self._project.VideoDecoder, num_threads=1), 10 * repeats),
            convert_s=convert_s,
            decode_s=decoding_s / sum(map(len, closures)),
            picture_s=weights * decoding_s / sum(float(weights[closure].sum()) for closure in closures),
        )

    def _convert_s(self, frames: Sequence[int]) -> float:
        every_frame = self.frames_of(self.closure(frames))
        return (self.cpu_s(every_frame) - self.cpu_s(frames)) / (len(every_frame) - len(frames))

    def _opening_s(self, opener: Any, repeats: int) -> float:
        return median(measured(partial(opener, str(self.path)))[1].cpu_s for _ in range(repeats))


def _picture_weights(shard: Path, num_pictures: int, passes: int = 3) -> npt.NDArray[np.float64]:
    av = import_module("av")
    least = np.full(num_pictures, np.inf)
    for _ in range(passes):
        with av.open(str(shard)) as container:
            stream = container.streams.video[0]
            stream.codec_context.thread_type, stream.codec_context.thread_count = "NONE", 1
            took = [_decode_s(stream.codec_context, packet) for packet in container.demux(stream) if packet.size]
        if len(took) != num_pictures:
            message = (
                f"{shard} has {len(took)} packets for {num_pictures} pictures: packets do not tell what each costs"
            )
            raise ValueError(message)
        least = np.minimum(least, took)
    return least


def _decode_s(codec: Any, packet: Any) -> float:
    start_s = time.thread_time()
    codec.decode(packet)
    return time.thread_time() - start_s


def measure_dataset(dataset: RobotDataset, *, num_batches: int, repeats: int, seed: int) -> dict[str, Any]:
    """Measure all shards of a dataset.

    Args:
        dataset: Whose shards.
        num_batches: How many batches of every pattern are held against the limit.
        repeats: How often a shard is opened.
        seed: Fixes which frames are asked.

    Returns:
        The means of the prices over the shards, and for every pattern how near to the limit it comes.

    """
    asked = {pattern: batches(dataset, pattern, num_batches, seed=seed) for pattern in PATTERNS}
    prices: list[ShardCosts] = []
    nearness: dict[str, list[float]] = {pattern: [] for pattern in PATTERNS}
    for path in dataset.shards:
        sets = {
            pattern: [frames for batch in drawn for shard, frames in batch.shard_frames() if shard == path]
            for pattern, drawn in asked.items()
        }
        shard = MeasuredShard(path)
        costs = shard.costs(sets["random"], repeats=repeats)
        for pattern, frame_sets in sets.items():
            nearness[pattern] += [
                costs.limit_s(shard.closure(frames), len(frames)) / shard.cpu_s(frames) for frames in frame_sets
            ]
        prices.append(costs)
    return {
        "index_pass_us_per_picture": 1e6 * fmean(costs.index_pass_s for costs in prices),
        "cached_open_ms": 1e3 * fmean(costs.cached_open_s for costs in prices),
        "convert_us": 1e6 * fmean(costs.convert_s for costs in prices),
        "full_decode_us_per_picture": 1e6 * fmean(costs.decode_s for costs in prices),
        "state_only_percent": fmean(costs.state_only_percent for costs in prices),
        "nearness_to_limit": {pattern: median(ratios) for pattern, ratios in nearness.items()},
    }


def _verdicts(name: str, figures: dict[str, Any]) -> list[targets.Verdict]:
    return [
        targets.Verdict(name, targets.INDEX_PASS, figures["index_pass_us_per_picture"]),
        targets.Verdict(name, targets.CACHED_OPEN, figures["cached_open_ms"]),
        targets.Verdict(name, targets.STATE_ONLY, figures["state_only_percent"]),
        *(
            targets.Verdict(f"{name} {pattern}", targets.LIMIT, ratio)
            for pattern, ratio in figures["nearness_to_limit"].items()
        ),
    ]


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("datasets", nargs="+", metavar="DATASET", help="folder of a LeRobot v3 dataset")
    parser.add_argument("--batches", type=int, default=8, help="batches of a pattern (default: 8)")
    parser.add_argument("--repeats", type=int, default=9, help="index passes of a shard (default: 9)")
    parser.add_argument("--seed", type=int, default=1, help="fixes which frames are asked (default: 1)")
    return parser.parse_args()


def main() -> None:
    """Measure, print and keep the figures."""
    options = _parsed()
    figures: dict[str, Any] = {}
    verdicts: list[targets.Verdict] = []
    for root in options.datasets:
        dataset = read_robot_dataset(root)
        if dataset.codec not in targets.SPARSE_CODECS:
            print(f"left out: {dataset.name}, since {dataset.codec} has no reference graph here")
            continue
        measured_figures = measure_dataset(
            dataset, num_batches=options.batches, repeats=options.repeats, seed=options.seed
        )
        print_table(
            f"{dataset.name} ({dataset.codec}), mean of its shards, one decoder thread",
            ["CPU us"],
            [
                ("index pass, a picture", [f"{measured_figures['index_pass_us_per_picture']:.1f}"]),
                ("full decode, a picture", [f"{measured_figures['full_decode_us_per_picture']:.0f}"]),
                ("convert, a frame", [f"{measured_figures['convert_us']:.0f}"]),
                ("open with cached index", [f"{1e3 * measured_figures['cached_open_ms']:.0f}"]),
            ],
        )
        of_dataset = _verdicts(dataset.name, measured_figures)
        print_verdicts(of_dataset)
        verdicts += of_dataset
        figures[dataset.name] = measured_figures
    write_results("decoder_costs", method=METHOD, options=options, figures=figures, verdicts=verdicts)


if __name__ == "__main__":
    main()
