# SPDX-License-Identifier: Apache-2.0
"""The video files of a LeRobot dataset, each with the episodes that lie in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from daft import col

from daft_sparsevideo.dataset_layout import LeRobotDataset, require_number


@dataclass
class DatasetShard:
    """One video file.

    Attributes:
        camera: Key of its camera.
        path: Where it is: a path or URL.
        name: Its path in the dataset.
        episodes: Number of each episode, in the order in which they lie.
        begins_s, ends_s: Seconds in the shard where each begins, and where it ends.
        lengths: Frames of each, as the tables tell.
    """

    camera: str
    path: str
    name: str
    episodes: list[int] = field(default_factory=list)
    begins_s: list[float] = field(default_factory=list)
    ends_s: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    @property
    def num_frames(self) -> int:
        """Frames that the tables tell of."""
        return sum(self.lengths)


def dataset_shards(dataset: LeRobotDataset, cameras: Sequence[str]) -> list[DatasetShard]:
    """The video files of some cameras, in the order of their names."""
    episodes = dataset.episodes(include_meta=False, include_stats=False, include_video_metadata=True)
    require_number(episodes, "length", f"the episodes of {dataset.root}", "tells how many frames each has")
    found: dict[str, DatasetShard] = {}
    for key in cameras:
        named = {
            "path": col(f"videos/{key}/video").file_path(),
            "episode": col("episode_index"),
            "length": col("length"),
            "begin": col(f"videos/{key}/from_timestamp"),
            "end": col(f"videos/{key}/to_timestamp"),
        }
        table = episodes.select(*(column.alias(name) for name, column in named.items()))
        rows: list[dict[str, Any]] = table.sort(["path", "begin"]).to_pylist()
        for row in rows:
            path = row["path"].removeprefix("file://")
            name = path.removeprefix(dataset.root).lstrip("/")
            shard = found.setdefault(path, DatasetShard(key, path, name))
            shard.episodes.append(row["episode"])
            shard.lengths.append(row["length"])
            shard.begins_s.append(row["begin"])
            shard.ends_s.append(row["end"])
    return list(found.values())
