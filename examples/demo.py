# SPDX-License-Identifier: Apache-2.0
"""Random frames of a LeRobot v3 dataset through a Daft query, checked against PyAV pixel by pixel.

    python examples/demo.py [DATASET] [--rows 16] [--seed 0] [--output build/demo]

Without DATASET a small one is drawn first. `decode_rows` is how the package is used.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import daft
import numpy as np
from contact_sheet import Tile, save_contact_sheet
from daft import col
from pyav_reference import Picture, Work, decode_in_order, decode_with_seeks
from robot_dataset import write_robot_dataset

from daft_sparsevideo import VideoDecoder, decode_frames, errors, lerobot

Columns = dict[str, list[Any]]


def decode_rows(rows: daft.DataFrame, cameras: list[str]) -> daft.DataFrame:
    """Add an image column for each camera."""
    for camera in cameras:
        shard, offset, end = (col(f"videos/{camera}/{name}") for name in ("video", "from_timestamp", "to_timestamp"))
        rows = rows.with_column(camera, decode_frames(shard, offset, col("timestamp"), end=end))
    return rows


def main() -> None:
    """Make or take a dataset, decode random rows, check and show them."""
    options = parse_options()
    dataset = options.dataset or drawn_dataset(options.output)
    frames = lerobot.read(str(dataset))  # every frame is a row that says where its pictures are
    cameras = [name.removeprefix("videos/").removesuffix("/video") for name in frames.column_names if is_shard(name)]

    total = frames.count_rows()
    chosen = np.random.default_rng(options.seed).choice(total, min(options.rows, total), replace=False)
    rows = frames.where(col("index").is_in(sorted(chosen.tolist())))
    print(f"{dataset}: {total} frames of {len(cameras)} cameras. Decoding {len(chosen)} random rows.\n")

    started = time.process_time()
    decoded = decode_rows(rows, cameras).collect()
    query_s = time.process_time() - started
    columns: Columns = decoded.to_pydict()

    moments = shard_moments(columns, cameras)
    reconstructed = sum(pictures_for(shard, seconds) for shard, seconds in moments.items())
    reference, in_order = decode_in_order(moments)
    works = [in_order, decode_with_seeks(moments), Work("Daft query with decode_frames", reconstructed, query_s)]
    print(f"{'':34}{'pictures decoded':>17}{'CPU time':>11}")
    for work in works:
        print(f"{work.way:34}{work.pictures:>17}{work.cpu_s:>9.2f} s")
    print("The query's time holds everything: reading and joining tables, opening and indexing shards, decoding.\n")

    tiles, wrong = compare(columns, cameras, reference)
    print(f"{len(tiles)} frames compared with PyAV's, pixel by pixel: {wrong or 'no'} pixels differ.")
    across = len(cameras) * max(1, 8 // len(cameras))
    print(f"Contact sheet: {save_contact_sheet(options.output / 'contact_sheet.png', tiles, columns=across)}")
    if wrong:
        raise SystemExit(1)


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Random frames of a LeRobot v3 dataset, checked against PyAV.")
    parser.add_argument("dataset", nargs="?", type=Path, help="folder of a LeRobot v3 dataset; default: draw one")
    parser.add_argument("--rows", type=int, default=16, help="random rows to decode (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of rows (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("build/demo"), help="folder (default: %(default)s)")
    return parser.parse_args()


def drawn_dataset(output: Path) -> Path:
    """Return the dataset that this demo draws, made once."""
    dataset = output / "dataset"
    if not dataset.exists():
        print("Drawing a dataset of two cameras and encoding it with x264; this takes about half a minute.")
        unfinished = output / "dataset.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        write_robot_dataset(unfinished).rename(dataset)
    return dataset


def is_shard(column: str) -> bool:
    """Tell whether a column holds the shards of a camera."""
    return column.startswith("videos/") and column.endswith("/video")


def shard_times(columns: Columns, camera: str) -> Iterator[tuple[str, float]]:
    """Each row's shard, and its time there in seconds."""
    files, offsets = columns[f"videos/{camera}/video"], columns[f"videos/{camera}/from_timestamp"]
    for file, offset, timestamp in zip(files, offsets, columns["timestamp"], strict=True):
        yield file.path.removeprefix("file://"), offset + timestamp


def shard_moments(columns: Columns, cameras: list[str]) -> dict[str, list[float]]:
    """All times that the rows ask of each shard."""
    moments: dict[str, list[float]] = {}
    for camera in cameras:
        for shard, time_s in shard_times(columns, camera):
            moments.setdefault(shard, []).append(time_s)
    return moments


def pictures_for(shard: str, seconds: list[float]) -> int:
    """How many pictures are decoded for these times: the frames, and what they are predicted from."""
    return VideoDecoder(shard).get_frames_played_at(seconds).stats.reconstructed


def compare(
    columns: Columns, cameras: list[str], reference: dict[tuple[str, float], Picture]
) -> tuple[list[Tile], int]:
    """Hold every picture of the query against PyAV's: tiles for a contact sheet, and how many pixels differ."""
    tiles, wrong = [], 0
    times = {camera: list(shard_times(columns, camera)) for camera in cameras}
    for row in sorted(range(len(columns["index"])), key=columns["index"].__getitem__):
        for camera in cameras:
            picture = columns[camera][row]
            wrong += int(np.any(picture != reference[times[camera][row]], axis=2).sum())
            episode, timestamp = columns["episode_index"][row], columns["timestamp"][row]
            tiles.append(Tile(picture, f"{camera.rpartition('.')[2]}  ep {episode}  {timestamp:.2f} s"))
    return tiles, wrong


if __name__ == "__main__":
    try:
        main()
    except (errors.SparseVideoError, OSError, ValueError) as error:
        raise SystemExit(f"demo: {error}") from None
