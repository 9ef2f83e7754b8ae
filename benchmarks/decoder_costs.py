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
    from collections.abc import Callable, Sequence
    from pathlib import Path

METHOD = """
One decoder thread, CPU time of all threads of the process, files in the page cache, shards open unless said. index
pass: opening a shard with nothing cached, per picture, median of the openings. cached open: making a VideoDecoder on
a shard whose index the process holds, median. Every batch of the four patterns is decoded four times: its targets;
all frames of their closure; all frames from the first to the last picture of the closure, which is the full decode;
the first three by the core, into memory in use; and the targets by VideoDecoder. convert: what the second costs more
than the first, per frame more, median over the batches. full decode: the third less its conversions, per picture,
median over the batches. limit: the pictures of the closure at the price of the batch's full decode plus the targets'
conversions, over the CPU time that VideoDecoder used, median over the batches. Since pictures that others refer to
cost more than the rest, the price of a full decode is spread over its pictures as PyAV spends it when it decodes
packet by packet with one thread. state-only: the index pass over a full decode, per picture; the pass sends every
whole packet as state-only, and its time includes opening and reading the container, so this is the most that a state-
only picture can cost.
"""

OUTPUT_FRAMES = 16
PYAV_PASSES = 3


@dataclass(frozen=True)
class BatchCosts:
    """One request on one shard: seconds of CPU time, and what was decoded in them."""

    num_targets: int
    used_s: float
    targets_s: float
    closure_s: float
    num_closure_frames: int
    full_s: float
    num_full_frames: int
    num_full_pictures: int
    closure_share: float
    """What the closure's pictures cost of the full decode's, by PyAV's reckoning."""

    def convert_s(self) -> float:
        """Tell what a conversion costs."""
        return (self.closure_s - self.targets_s) / (self.num_closure_frames - self.num_targets)

    def full_decode_s(self, convert_s: float) -> float:
        """Tell what the full decode costs without its conversions."""
        return self.full_s - self.num_full_frames * convert_s

    def nearness(self, convert_s: float) -> float:
        """Tell which part of the CPU time used is the least that the targets can cost."""
        return (self.full_decode_s(convert_s) * self.closure_share + self.num_targets * convert_s) / self.used_s


class MeasuredShard:
    """One shard on the bench: its index and plans from the core, its frames from a `VideoDecoder`."""

    def __init__(self, path: Path) -> None:
        """Open the shard, and let PyAV tell what its pictures cost relative to one another."""
        self._path = str(path)
        self._project = import_module("daft_sparsevideo")
        self._core = import_module("daft_sparsevideo._core")
        self._shard: Any = self._core.Shard(self._path)
        self._decoder: Any = self._project.VideoDecoder(self._path, num_threads=1)
        self._picture_of_frame: npt.NDArray[np.int32] = np.asarray(self._shard.index.frame_picture)
        # Written to once, or its first use would pay for the pages.
        self._output = np.full(OUTPUT_FRAMES * self._shard.index.height * self._shard.index.width * 3, 1, np.uint8)
        pyav_s = _pyav_picture_s(path, self._shard.index.num_pictures)
        self._weights = pyav_s.min(axis=0)
        self.pyav_picture_s = float(pyav_s.mean(axis=1).min())

    def index_pass_s(self, repeats: int) -> float:
        """Open the shard with nothing cached, and tell the CPU time for each picture."""
        return self._opening_s(self._core.Shard, repeats) / int(self._shard.index.num_pictures)

    def cached_open_s(self, repeats: int) -> float:
        """Make a decoder on the shard, whose index is cached, and tell the CPU time."""
        return self._opening_s(self._project.VideoDecoder, repeats)

    def costs(self, frames: Sequence[int]) -> BatchCosts:
        """Measure a request beside a full decode of the stretch of video that it touches.

        Args:
            frames: The targets.

        Returns:
            What it cost.

        """
        closure = self._closure(frames)
        closure_frames = np.flatnonzero(np.isin(self._picture_of_frame, closure))
        first, last = closure.min(), closure.max()
        full_frames = np.flatnonzero((self._picture_of_frame >= first) & (self._picture_of_frame <= last))
        full = self._closure(full_frames)
        return BatchCosts(
            num_targets=len(frames),
            targets_s=self._decode_s(np.asarray(frames)),
            closure_s=self._decode_s(closure_frames),
            num_closure_frames=len(closure_frames),
            full_s=self._decode_s(full_frames),
            num_full_frames=len(full_frames),
            num_full_pictures=len(full),
            closure_share=float(self._weights[closure].sum() / self._weights[full].sum()),
            used_s=measured(partial(self._decoder.get_frames_at, frames))[1].cpu_s,
        )

    def _closure(self, frames: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        return np.asarray(self._shard.plan(np.asarray(frames, np.int64)).closure)

    def _decode_s(self, frames: npt.NDArray[np.int64]) -> float:
        frame_bytes = self._output.nbytes // OUTPUT_FRAMES
        offsets = np.arange(len(frames)) % OUTPUT_FRAMES * frame_bytes
        return measured(partial(self._shard.decode, frames, self._output, offsets, num_threads=1))[1].cpu_s

    def _opening_s(self, opener: Callable[[str], object], repeats: int) -> float:
        return median(measured(partial(opener, self._path))[1].cpu_s for _ in range(repeats))


def _pyav_picture_s(shard: Path, num_pictures: int) -> npt.NDArray[np.float64]:
    av = import_module("av")
    took = []
    for _ in range(PYAV_PASSES):
        with av.open(str(shard)) as container:
            stream = container.streams.video[0]
            stream.codec_context.thread_type, stream.codec_context.thread_count = "NONE", 1
            took.append([_decode_s(stream.codec_context, packet) for packet in container.demux(stream) if packet.size])
    if len(took[0]) != num_pictures:
        raise ValueError(f"{shard} has {len(took[0])} packets for {num_pictures} pictures: they cannot be matched")
    return np.array(took)


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
        The prices, and for every pattern how near to the limit it comes.

    """
    shards = {path: MeasuredShard(path) for path in dataset.shards}
    costs = {
        pattern: [
            shards[shard].costs(frames)
            for batch in batches(dataset, pattern, num_batches, seed=seed)
            for shard, frames in batch.shard_frames()
        ]
        for pattern in PATTERNS
    }
    every = [cost for of_pattern in costs.values() for cost in of_pattern]
    convert_s = median(cost.convert_s() for cost in every if cost.num_closure_frames > cost.num_targets)
    picture_s = median(cost.full_decode_s(convert_s) / cost.num_full_pictures for cost in every)
    index_pass_s = fmean(shard.index_pass_s(repeats) for shard in shards.values())
    return {
        "index_pass_us_per_picture": 1e6 * index_pass_s,
        "cached_open_ms": 1e3 * fmean(shard.cached_open_s(10 * repeats) for shard in shards.values()),
        "convert_us": 1e6 * convert_s,
        "full_decode_us_per_picture": 1e6 * picture_s,
        "pyav_full_decode_us_per_picture": 1e6 * fmean(shard.pyav_picture_s for shard in shards.values()),
        "state_only_percent": 100 * index_pass_s / picture_s,
        "nearness_to_limit": {
            pattern: median(cost.nearness(convert_s) for cost in of_pattern) for pattern, of_pattern in costs.items()
        },
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
                ("the same by PyAV", [f"{measured_figures['pyav_full_decode_us_per_picture']:.0f}"]),
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
