# SPDX-License-Identifier: Apache-2.0
"""Random frames of a LeRobot v3 dataset through a Daft query, checked against PyAV pixel by pixel.

    python examples/demo.py [DATASET] [--rows 32] [--seed 0] [--output build/demo]

Without DATASET a small one is drawn first. What follows is also how to use the package: see `decode_rows`.
"""

from __future__ import annotations

import argparse
import shutil
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import av
import daft
import numpy as np
import numpy.typing as npt
from contact_sheet import Tile, save_contact_sheet
from daft import col
from daft.datasets import lerobot
from robot_dataset import write_robot_dataset

from daft_sparsevideo import VideoDecoder, decode_frames

Picture = npt.NDArray[np.uint8]
Moments = dict[str, list[float]]
"""Seconds asked for, by shard."""


def dataset_rows(dataset: str) -> daft.DataFrame:
    """Every frame of the dataset as a row that says where its pictures are; no video is touched.

    Daft joins the frames with their episodes: `videos/CAMERA/video` is the shard, `videos/CAMERA/from_timestamp` where
    the episode begins in it, and `timestamp` the time since then.
    """
    episodes = lerobot.read_episodes(dataset, include_video_metadata=True)
    return lerobot.load_episode_frames(episodes, dataset)


def decode_rows(rows: daft.DataFrame, cameras: list[str]) -> daft.DataFrame:
    """Add an image column for each camera: this is all that the package asks of you."""
    for camera in cameras:
        shard, offset = col(f"videos/{camera}/video"), col(f"videos/{camera}/from_timestamp")
        rows = rows.with_column(camera, decode_frames(shard, offset, col("timestamp")))
    return rows


@dataclass(frozen=True)
class Work:
    """What one way to get the pictures took."""

    way: str
    pictures: int
    cpu_s: float


def main() -> None:
    """Make or take a dataset, decode random rows, check and show them."""
    options = parse_options()
    dataset = options.dataset or drawn_dataset(options.output)
    frames = dataset_rows(str(dataset.resolve()))  # absolute: Daft takes a relative `a/b` for the name of a hub dataset
    cameras = [name.removeprefix("videos/").removesuffix("/video") for name in frames.column_names if is_video(name)]

    total = frames.count_rows()
    chosen = np.random.default_rng(options.seed).choice(total, min(options.rows, total), replace=False)
    rows = frames.where(col("index").is_in(sorted(chosen.tolist())))
    print(f"{dataset}: {total} frames, {len(cameras)} cameras. Decoding {len(chosen)} random rows of all cameras.\n")

    started = time.process_time()
    decoded = decode_rows(rows, cameras).collect()
    query_s = time.process_time() - started
    columns = decoded.to_pydict()

    moments = moments_of(columns, cameras)
    reconstructed = sum(planned_pictures(shard, seconds) for shard, seconds in moments.items())
    reference, sequential = in_order(moments)
    works = [
        Work("PyAV, whole shards in order", sequential.pictures, sequential.cpu_s),
        with_seeks(moments),
        Work("daft_sparsevideo, the whole Daft query", reconstructed, query_s),
    ]
    tiles, wrong = compare(columns, cameras, reference)
    sheet = save_contact_sheet(options.output / "contact_sheet.png", tiles, columns=2 * max(1, 8 // 2))

    print(f"{'':40}{'pictures decoded':>17}{'CPU time':>11}")
    for work in works:
        print(f"{work.way:40}{work.pictures:>17}{work.cpu_s:>9.2f} s")
    print(f"\n{len(tiles)} frames compared with PyAV's: {wrong or 'no'} pixel{'s' * (wrong != 1)} differ.")
    print(f"Contact sheet: {sheet}")
    if wrong:
        raise SystemExit(1)


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Random frames of a LeRobot v3 dataset, checked against PyAV.")
    parser.add_argument("dataset", nargs="?", type=Path, help="folder of a LeRobot v3 dataset; default: draw one")
    parser.add_argument("--rows", type=int, default=32, help="random rows to decode (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of rows (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("build/demo"), help="folder (default: %(default)s)")
    return parser.parse_args()


def drawn_dataset(output: Path) -> Path:
    """The dataset that this demo draws, made once."""
    dataset = output / "dataset"
    if not dataset.exists():
        print("Drawing a dataset of two cameras and encoding it with x264; this takes about half a minute.")
        unfinished = output / "dataset.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        write_robot_dataset(unfinished).rename(dataset)
    return dataset


def is_video(column: str) -> bool:
    """Whether a column holds shards of a camera."""
    return column.startswith("videos/") and column.endswith("/video")


def shard_times(columns: dict[str, list[object]], camera: str) -> Iterator[tuple[str, float]]:
    """Each row's shard, and its time there in seconds."""
    files, offsets = columns[f"videos/{camera}/video"], columns[f"videos/{camera}/from_timestamp"]
    for file, offset, timestamp in zip(files, offsets, columns["timestamp"], strict=True):
        yield file.path.removeprefix("file://"), float(offset) + float(timestamp)


def moments_of(columns: dict[str, list[object]], cameras: list[str]) -> Moments:
    """All times that the rows ask of each shard."""
    moments: Moments = {}
    for camera in cameras:
        for shard, time_s in shard_times(columns, camera):
            moments.setdefault(shard, []).append(time_s)
    return moments


def planned_pictures(shard: str, seconds: list[float]) -> int:
    """How many pictures the sparse decoder reconstructs for these times."""
    decoder = VideoDecoder(shard)
    batch = decoder.get_frames_played_at(seconds)
    return batch.stats.reconstructed


def in_order(moments: Moments) -> tuple[dict[tuple[str, float], Picture], Work]:
    """Decode every shard from its first frame to its last with PyAV, and keep the frame nearest to each time."""
    nearest: dict[tuple[str, float], Picture] = {}
    pictures = 0
    started = time.process_time()
    for shard, seconds in moments.items():
        waiting = sorted(set(seconds), reverse=True)
        previous: av.VideoFrame | None = None
        for frame in pyav_frames(shard):
            pictures += 1
            while waiting and frame.time > waiting[-1]:  # between this frame and the one before it
                asked = waiting.pop()
                near = frame if previous is None or frame.time - asked < asked - previous.time else previous
                nearest[shard, asked] = near.to_ndarray(format="rgb24")
            previous = frame
        for asked in waiting:
            nearest[shard, asked] = previous.to_ndarray(format="rgb24")
    return nearest, Work("", pictures, time.process_time() - started)


def with_seeks(moments: Moments) -> Work:
    """Decode the same frames with PyAV as a careful user would: times sorted, a seek where it skips a key frame."""
    pictures = 0
    started = time.process_time()
    for shard, seconds in moments.items():
        with av.open(shard) as file:
            stream = file.streams.video[0]
            stream.codec_context.thread_count = 1
            entries = list(stream.index_entries)
            shift = (stream.start_time or 0) - entries[0].timestamp  # the index holds decode times
            keys = sorted(float((entry.timestamp + shift) * stream.time_base) for entry in entries if entry.is_keyframe)
            half_s = 0.5 / float(stream.average_rate)
            frames: Iterator[av.VideoFrame] = iter(())
            position = -np.inf
            for asked in sorted(set(seconds)):
                if keys[max(0, bisect_right(keys, asked + half_s) - 1)] > position + half_s:
                    file.seek(max(0, round(asked / stream.time_base)), stream=stream)
                    frames, position = file.decode(stream), -np.inf
                while position < asked - half_s:
                    frame = next(frames, None)
                    if frame is None:
                        break
                    pictures += 1
                    position = frame.time
                frame.to_ndarray(format="rgb24")
    return Work("PyAV, sorted seeks", pictures, time.process_time() - started)


def pyav_frames(shard: str) -> Iterator[av.VideoFrame]:
    """All frames of a shard in order, by one thread."""
    with av.open(shard) as file:
        stream = file.streams.video[0]
        stream.codec_context.thread_count = 1
        yield from file.decode(stream)


def compare(
    columns: dict[str, list[object]], cameras: list[str], reference: dict[tuple[str, float], Picture]
) -> tuple[list[Tile], int]:
    """Hold every picture of the query against PyAV's; also lay out the contact sheet."""
    tiles, wrong = [], 0
    order = sorted(range(len(columns["index"])), key=lambda row: columns["index"][row])
    times = {camera: list(shard_times(columns, camera)) for camera in cameras}
    for row in order:
        for camera in cameras:
            picture: Picture = columns[camera][row]
            wrong += int(np.any(picture != reference[times[camera][row]], axis=2).sum())
            label = f"{camera.rpartition('.')[2]}  ep {columns['episode_index'][row]}  {columns['timestamp'][row]:.2f} s"
            tiles.append(Tile(picture, label))
    return tiles, wrong


if __name__ == "__main__":
    main()
