# SPDX-License-Identifier: Apache-2.0
"""Windows of a LeRobot v3 dataset as batches of torch tensors: a DataLoader without a Python object for each frame.

    python examples/training_loader.py [DATASET] [--batch-size 16] [--epochs 2] [--output build/demo]

Without DATASET a small one is drawn first. Needs torch (the CPU build will do).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import daft
import pyarrow as pa
import torch
from daft import col
from daft.functions import hash as hash_of
from demo import drawn_dataset
from torch.utils.data import DataLoader, IterableDataset

from daft_sparsevideo import decode_stats, decode_windows, lerobot, reset_decode_stats

Batch = dict[str, torch.Tensor]

CAMERA = "observation.images.top"
DELTAS_S = (-0.2, -0.1, 0.0)  # what a policy sees: the present frame and two before it
SIZE = {"height": 240, "width": 320}


def windows(rows: daft.DataFrame, *, epoch: int, batch_size: int) -> daft.DataFrame:
    """All rows in an order of this epoch's own, each with its window of frames.

    `into_batches` stands before the decoding, so that one batch of training is decoded together.
    """
    shuffled = rows.sort(hash_of(col("index"), seed=epoch)).into_batches(batch_size)
    video = f"videos/{CAMERA}"
    shard, offset, end = (col(f"{video}/{name}") for name in ("video", "from_timestamp", "to_timestamp"))
    window = decode_windows(shard, offset, col("timestamp"), end=end, deltas_s=DELTAS_S, batch_size=batch_size, **SIZE)
    return shuffled.select("index", "action", window)


class ArrowBatches(IterableDataset[Batch]):
    """Batches of a query as tensors that show the memory of its columns."""

    def __init__(self, query: daft.DataFrame) -> None:
        self.query = query

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.query.to_arrow_iter():
            window = batch.column("window")
            yield {
                "index": tensor_of(batch.column("index")),
                "action": tensor_of(batch.column("action")),
                "frames": tensor_of(window.field("frames").storage, len(DELTAS_S), *SIZE.values(), 3),
                "is_pad": tensor_of(window.field("is_pad")),
            }


def tensor_of(column: pa.Array, *shape: int) -> torch.Tensor:
    """A column without nulls, of numbers or of lists of them, as one tensor; only flags are copied, bits to bytes."""
    count = len(column)
    if pa.types.is_fixed_size_list(column.type):
        shape = shape or (column.type.list_size,)
        column = column.flatten()
    if pa.types.is_boolean(column.type):
        return torch.from_numpy(column.to_numpy(zero_copy_only=False)).reshape(count, *shape)
    return torch.from_dlpack(column).reshape(count, *shape)


def train(batches: Iterable[Batch]) -> float:
    """What a model would do with the batches: here, the mean light of all frames that are no padding."""
    light = 0.0
    frames = 0
    for batch in batches:
        seen = batch["frames"][~batch["is_pad"]]
        light += seen.float().mean(dim=(1, 2, 3)).sum().item()
        frames += len(seen)
    return light / frames


def main() -> None:
    """Train for some epochs, then hold the ways of handing over the batches side by side."""
    parser = argparse.ArgumentParser(description="Windows of a LeRobot v3 dataset as batches of torch tensors.")
    parser.add_argument("dataset", nargs="?", type=Path, help="folder of a LeRobot v3 dataset; default: draw one")
    parser.add_argument("--batch-size", type=int, default=16, help="windows of a batch (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=2, help="(default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("build/demo"), help="folder (default: %(default)s)")
    options = parser.parse_args()
    rows = lerobot.read(options.dataset or drawn_dataset(options.output))

    for epoch in range(options.epochs):
        reset_decode_stats()
        started = time.perf_counter()
        query = windows(rows, epoch=epoch, batch_size=options.batch_size)
        light = train(DataLoader(ArrowBatches(query), batch_size=None))
        epoch_s = time.perf_counter() - started
        stats = decode_stats()
        print(
            f"epoch {epoch}: mean light {light:.2f} in {epoch_s:.2f} s; {stats.requested} frames, "
            f"{stats.reconstructed} pictures reconstructed, {stats.decode_amplification:.2f} for each different frame"
        )

    decoded = windows(rows, epoch=0, batch_size=options.batch_size).limit(8 * options.batch_size).collect()
    print(f"\nHanding over {len(decoded)} windows that are decoded already:")
    ways: dict[str, Iterable[Any]] = {
        "to_arrow_iter, tensors that show the columns": DataLoader(ArrowBatches(decoded), batch_size=None),
        "to_torch_iter_dataset, rows stacked by the DataLoader": DataLoader(
            decoded.to_torch_iter_dataset(), batch_size=options.batch_size
        ),
    }
    for way, batches in ways.items():
        started = time.perf_counter()
        for _ in batches:
            pass
        print(f"  {way:54} {(time.perf_counter() - started) / len(decoded) * 1e6:8.1f} us a window")


if __name__ == "__main__":
    main()
