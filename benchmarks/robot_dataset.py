# SPDX-License-Identifier: Apache-2.0
"""Where the frames of a LeRobot v3 dataset lie: episodes, cameras and video shards."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


@dataclass(frozen=True)
class Episode:
    """One episode: its number, its length, and for every camera its shard and its first frame there."""

    index: int
    num_frames: int
    shards: dict[str, Path]
    first_frames: dict[str, int]


@dataclass(frozen=True)
class RobotDataset:
    """A LeRobot v3 dataset whose packets lie on the grid of frame / fps."""

    root: Path
    fps: float
    codec: str
    cameras: tuple[str, ...]
    episodes: tuple[Episode, ...]

    @property
    def name(self) -> str:
        """The folder's name, which is what reports print."""
        return self.root.name

    @property
    def num_frames(self) -> int:
        """Rows of the dataset."""
        return sum(episode.num_frames for episode in self.episodes)

    @property
    def shards(self) -> tuple[Path, ...]:
        """Every video shard once."""
        return tuple(sorted({shard for episode in self.episodes for shard in episode.shards.values()}))


def read_robot_dataset(root: str | Path) -> RobotDataset:
    """Read the layout of a dataset from its `meta` folder.

    Args:
        root: The dataset's folder, which holds `meta`, `data` and `videos`.

    Returns:
        The dataset with absolute paths (Daft takes a relative `a/b` for a hub id).

    Raises:
        FileNotFoundError: `root` holds no `meta/info.json`.
        ValueError: The dataset has no video feature.

    """
    folder = Path(root).resolve()
    info: dict[str, Any] = json.loads((folder / "meta" / "info.json").read_text())
    videos = {name: feature for name, feature in info["features"].items() if feature["dtype"] == "video"}
    if not videos:
        raise ValueError(f"{folder} has no video feature in meta/info.json")
    cameras = tuple(videos)
    rows = pq.read_table(folder / "meta" / "episodes").to_pylist()
    return RobotDataset(
        root=folder,
        fps=float(info["fps"]),
        codec=str(videos[cameras[0]].get("info", {}).get("video.codec", "unknown")),
        cameras=cameras,
        episodes=tuple(_episode(folder, info, cameras, row) for row in rows),
    )


def _episode(folder: Path, info: dict[str, Any], cameras: tuple[str, ...], row: dict[str, Any]) -> Episode:
    shards = {
        camera: folder
        / str(info["video_path"]).format(
            video_key=camera,
            chunk_index=row[f"videos/{camera}/chunk_index"],
            file_index=row[f"videos/{camera}/file_index"],
        )
        for camera in cameras
    }
    first_frames = {camera: round(row[f"videos/{camera}/from_timestamp"] * info["fps"]) for camera in cameras}
    return Episode(row["episode_index"], row["length"], shards, first_frames)
