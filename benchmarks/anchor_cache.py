# SPDX-License-Identifier: Apache-2.0
"""What the anchor cache saves in a shuffled epoch: single frames of a shard in random order, each asked once.

Run it as `python -m benchmarks.anchor_cache DATASET... [--frames 400] [--max-mib 1024]`.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import av
import av.video.frame
import numpy as np

from benchmarks import targets
from benchmarks.cpu_clock import Cost, measured
from benchmarks.report import print_table, print_verdicts, write_results
from benchmarks.robot_dataset import read_robot_dataset

METHOD = """
Every frame of a shard (or --frames of them) is asked once, alone, in random order, by one decoder thread: without the
anchor cache, then with it, empty at first. Pictures are exact counts; CPU time is of the process. The stream with intra
anchors is the first camera's first frames encoded anew with x264 as I B*15 I B*15 ..., no B-frame a reference: every
frame depends on the two anchors around it. All frames with the cache equal those without.
"""

ANCHOR_INTERVAL = 16


@dataclass(frozen=True)
class Epoch:
    """One pass over the frames of a shard."""

    pictures: int
    restored: int
    cost: Cost
    digests: list[bytes]


def _with_intra_anchors(shard: Path, target: Path, num_frames: int) -> Path:
    kinds = av.video.frame.PictureType
    with av.open(str(shard)) as source, av.open(str(target), "w") as out:
        stream: Any = out.add_stream("libx264", rate=30)
        stream.options = {
            "crf": "23",
            "x264-params": "keyint=9999:scenecut=0:bframes=16:b-adapt=0:b-pyramid=none:open-gop=1",
        }
        for number, frame in enumerate(source.decode(video=0)):
            if number == num_frames:
                break
            if number == 0:
                stream.width, stream.height, stream.pix_fmt = frame.width, frame.height, "yuv420p"
            frame.pict_type = kinds.I if number % ANCHOR_INTERVAL == 0 else kinds.B
            frame.pts, frame.time_base = number, Fraction(1, 30)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return target


def run_epoch(shard: Path, order: list[int], max_bytes: int) -> Epoch:
    """Ask the frames one by one.

    Args:
        shard: The video.
        order: Frame numbers.
        max_bytes: Bound of the anchor cache, which is empty at first; 0: without it.

    Returns:
        What it took.

    """
    project = import_module("daft_sparsevideo")
    project.set_anchor_cache(0)
    project.set_anchor_cache(max_bytes)
    decoder = project.VideoDecoder(str(shard), num_threads=1)
    batches, cost = measured(lambda: [decoder.get_frames_at([frame]) for frame in order])
    project.set_anchor_cache(0)
    return Epoch(
        pictures=sum(batch.stats.reconstructed for batch in batches),
        restored=sum(batch.stats.restored for batch in batches),
        cost=cost,
        digests=[batch.data.tobytes() for batch in batches],
    )


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("datasets", nargs="+", metavar="DATASET", help="folder of a LeRobot v3 dataset")
    parser.add_argument("--frames", type=int, default=400, help="frames of an epoch, at most (default: 400)")
    parser.add_argument("--max-mib", type=int, default=1024, help="bound of the cache in MiB (default: 1024)")
    return parser.parse_args()


def main() -> None:
    """Measure, print and keep the figures."""
    options = _parsed()
    verdicts: list[targets.Verdict] = []
    figures: dict[str, Any] = {}
    with TemporaryDirectory() as scratch:
        shards: dict[str, Path] = {}
        for root in options.datasets:
            dataset = read_robot_dataset(root)
            camera = dataset.cameras[0]
            shard = Path(dataset.episodes[0].shards[camera])
            if not shards:
                made = Path(scratch) / "intra_anchors.mp4"
                length = ANCHOR_INTERVAL * 16 + 1
                shards[f"intra anchors, every {ANCHOR_INTERVAL}th"] = _with_intra_anchors(shard, made, length)
            shards[f"{dataset.name} {camera}"] = shard
        for name, shard in shards.items():
            num_frames = len(import_module("daft_sparsevideo").VideoDecoder(str(shard)))
            order = np.random.default_rng(1).permutation(num_frames)[: options.frames].tolist()
            without = run_epoch(shard, order, 0)
            with_cache = run_epoch(shard, order, options.max_mib << 20)
            if without.digests != with_cache.digests:
                raise AssertionError(f"{name}: frames from the anchor cache differ")
            fewer = without.pictures / with_cache.pictures
            print_table(
                f"{name}: {len(order)} of {num_frames} frames, each alone, shuffled",
                ["pictures reconstructed", "from the cache", "CPU ms"],
                [
                    (head, [str(epoch.pictures), str(epoch.restored), f"{1e3 * epoch.cost.cpu_s:.0f}"])
                    for head, epoch in (("without cache", without), ("with cache", with_cache))
                ],
            )
            figures[name] = {
                "frames": len(order),
                "reconstructed": [without.pictures, with_cache.pictures],
                "cpu_ms": [round(1e3 * epoch.cost.cpu_s, 1) for epoch in (without, with_cache)],
            }
            if shard.name == "intra_anchors.mp4":
                verdicts.append(targets.Verdict(name, targets.ANCHOR_CACHE, fewer))
    print_verdicts(verdicts)
    write_results("anchor_cache", method=METHOD, options=options, figures=figures, verdicts=verdicts)


if __name__ == "__main__":
    main()
