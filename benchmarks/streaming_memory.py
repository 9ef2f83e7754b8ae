# SPDX-License-Identifier: Apache-2.0
"""Memory while a Daft query streams many more frames than would fit into it.

Run it as `python -m benchmarks.streaming_memory DATASET [--frames 20000]`.
"""

from __future__ import annotations

import argparse
import itertools
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import daft
from daft import col

from benchmarks import targets
from benchmarks.report import print_table, print_verdicts, write_results
from benchmarks.robot_dataset import RobotDataset, read_robot_dataset

if TYPE_CHECKING:
    from daft import DataFrame

METHOD = """
A Daft query over rows in memory (shard, offset, timestamp: every episode of every camera in order, over and over)
decodes the frames and is read with to_arrow_iter, each of its batches dropped once its rows are counted. Peak memory
is the kernel's high-water mark of the process's resident memory (VmHWM), imports included, in a process that did
nothing else.
"""

TARGET_FRAMES = 20_000


def _resident_mb(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024 / 1e6
    raise LookupError(f"/proc/self/status has no {field}")


def _query(dataset: RobotDataset, num_frames: int, num_threads: int | None, batch_rows: int) -> DataFrame:
    every_frame = (
        (str(episode.shards[camera]), episode.first_frames[camera] / dataset.fps, frame / dataset.fps)
        for camera in dataset.cameras
        for episode in dataset.episodes
        for frame in range(episode.num_frames)
    )
    rows = list(itertools.islice(itertools.cycle(every_frame), num_frames))
    shards, offsets_s, timestamps_s = (list(column) for column in zip(*rows, strict=True))
    decode_frames = import_module("daft_sparsevideo").decode_frames
    image = decode_frames(
        col("shard"), col("offset_s"), col("timestamp_s"), num_threads=num_threads, batch_size=batch_rows
    ).alias("image")
    frames = daft.from_pydict({"shard": shards, "offset_s": offsets_s, "timestamp_s": timestamps_s})
    return frames.into_batches(batch_rows).select(image)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("dataset", metavar="DATASET", help="folder of a LeRobot v3 dataset")
    parser.add_argument("--threads", type=int, help="decoder threads of decode_frames (default: its own)")
    parser.add_argument(
        "--frames", type=int, default=TARGET_FRAMES, help=f"frames to decode (default: {TARGET_FRAMES})"
    )
    parser.add_argument(
        "--batch-rows", type=int, default=128, help="rows of a batch (default: 128, decode_frames's own)"
    )
    return parser.parse_args()


def main() -> None:
    """Measure, print and keep the figures."""
    options = _parsed()
    daft.set_runner_native()
    dataset = read_robot_dataset(options.dataset)
    query = _query(dataset, options.frames, options.threads, options.batch_rows)
    start_mb, start_s = _resident_mb("VmRSS"), time.perf_counter()
    decoded = sum(batch.num_rows for batch in query.to_arrow_iter())
    took_s, peak_mb = time.perf_counter() - start_s, _resident_mb("VmHWM")
    if decoded != options.frames:
        raise AssertionError(f"the query returned {decoded} of {options.frames} frames")
    figures: dict[str, Any] = {
        "dataset": dataset.name,
        "frames": decoded,
        "before_mb": round(start_mb),
        "peak_mb": round(peak_mb),
        "wall_s": round(took_s, 1),
    }
    print_table(
        f"{dataset.name} ({dataset.codec}): {decoded} frames through to_arrow_iter in batches of {options.batch_rows}",
        ["MB"],
        [("resident before the query", [f"{start_mb:.0f}"]), ("peak", [f"{peak_mb:.0f}"])],
    )
    verdicts = [targets.Verdict(dataset.name, targets.STREAMING_MEMORY, peak_mb)] if decoded >= TARGET_FRAMES else []
    print_verdicts(verdicts)
    write_results("streaming_memory", method=METHOD, options=options, figures=figures, verdicts=verdicts)


if __name__ == "__main__":
    main()
