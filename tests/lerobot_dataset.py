# SPDX-License-Identifier: Apache-2.0
"""Small LeRobot datasets of every version, whose pictures carry their numbers (see `scenes.numbered`)."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from encoding import encode
from scenes import numbered

FPS = 10
WIDTH, HEIGHT = 96, 64
TOP, WRIST = "observation.images.top", "observation.images.wrist"
PATHS = {
    2: (
        "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    ),
    3: (
        "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    ),
}

Version = Literal["v2.0", "v2.1", "v3.0"]
Place = tuple[int, int]


@dataclass
class Plan:
    """What a dataset is to look like.

    Args:
        lengths: frames of each episode.
        videos: cameras with video files, and for v3 the (chunk, file) of each episode's footage.
        images: cameras whose images lie in the data.
        data_files: for v3, the (chunk, file) of each episode's rows.
        episode_files: for v3, the (chunk, file) of each episode's own metadata.
        data_path: template of info.json; None for the version's own.
        video_path: as `data_path`.
        without: columns to leave out, of data and of episodes.
        state: numbers in `observation.state`.
    """

    version: Version = "v3.0"
    lengths: Sequence[int] = (9, 12)
    videos: dict[str, Sequence[Place]] = field(default_factory=lambda: {TOP: [(0, 0)] * 2, WRIST: [(0, 0)] * 2})
    images: Sequence[str] = ()
    data_files: Sequence[Place] = ()
    episode_files: Sequence[Place] = ()
    data_path: str | None = None
    video_path: str | None = None
    without: Sequence[str] = ()
    chunks_size: int = 1000
    first_episode: int = 0


def camera_number(key: str) -> int:
    return {TOP: 0, WRIST: 1000}.get(key, 2000)


def number_at(key: str, index: int) -> int:
    """The number that the camera's picture of the dataset's frame `index` carries."""
    return camera_number(key) + index


def state_at(index: int) -> list[float]:
    return [float(np.float32(index + 0.1)), -float(index), 2.0]


def write_dataset(root: Path, plan: Plan) -> Path:
    """Write the dataset that `plan` describes into the folder `root`, and return `root`."""
    is_v3 = plan.version.startswith("v3")
    own_data_path, own_video_path = PATHS[int(plan.version[1])]
    data_path, video_path = plan.data_path or own_data_path, plan.video_path or own_video_path
    count = len(plan.lengths)
    begins = np.concatenate([[0], np.cumsum(plan.lengths)]).tolist()
    numbers = [plan.first_episode + i for i in range(count)]
    fields = [{"episode_index": i, "episode_chunk": i // plan.chunks_size} for i in numbers]

    files: dict[Path, list[pa.Table]] = {}
    for i in range(count):
        chunk, file = (plan.data_files or [(0, 0)] * count)[i]
        place = {"chunk_index": chunk, "file_index": file} if is_v3 else {}
        path = root / data_path.format(**fields[i] | place)
        files.setdefault(path, []).append(_rows(plan, numbers[i], begins[i], plan.lengths[i], root))
    for path, tables in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.concat_tables(tables), path, row_group_size=7)

    episodes: list[dict[str, Any]] = [
        {"episode_index": numbers[i], "tasks": ["Put the cube into the bowl."], "length": plan.lengths[i]}
        for i in range(count)
    ]
    for key, places in plan.videos.items():
        shards: dict[Path, list[int]] = {}
        for i in range(count):
            chunk, file = places[i] if is_v3 else (0, 0)
            place = {"chunk_index": chunk, "file_index": file} if is_v3 else {}
            path = root / video_path.format(**fields[i] | place, video_key=key)
            shown = shards.setdefault(path, [])
            if is_v3:
                episodes[i] |= {
                    f"videos/{key}/chunk_index": chunk,
                    f"videos/{key}/file_index": file,
                    f"videos/{key}/from_timestamp": len(shown) / FPS,
                    f"videos/{key}/to_timestamp": (len(shown) + plan.lengths[i]) / FPS,
                }
            shown += [number_at(key, n) for n in range(begins[i], begins[i + 1])]
        for path, shown in shards.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            encode(path, [numbered(n, WIDTH, HEIGHT) for n in shown], params="keyint=12:bframes=2", rate=FPS)
    _write_meta(root, plan, episodes, data_path, video_path)
    return root


def png(picture: npt.NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "png")
    return file.getvalue()


def _rows(plan: Plan, episode: int, begin: int, length: int, root: Path) -> pa.Table:
    index = list(range(begin, begin + length))
    columns: dict[str, Any] = {
        "observation.state": pa.array([state_at(i) for i in index], pa.list_(pa.float32(), 3)),
        "action": pa.array([[i, i + 1] for i in index], pa.list_(pa.float64())),
        "next.reward": pa.array([i / 2 for i in index], pa.float32()),
        "next.done": [i == index[-1] for i in index],
        "note": [str(i) for i in index],
        "timestamp": (np.arange(length) / FPS).astype(np.float32),
        "frame_index": np.arange(length),
        "episode_index": [episode] * length,
        "index": index,
        "task_index": [0] * length,
    }
    for key in plan.images:
        cells = []
        for i in index:
            encoded = png(numbered(number_at(key, i), WIDTH, HEIGHT))
            name = f"images/{i}.png"
            if i % 3 == 2:  # some lie beside the data
                (root / "images").mkdir(parents=True, exist_ok=True)
                (root / name).write_bytes(encoded)
            cells.append({"bytes": None if i % 3 == 2 else encoded, "path": name})
        columns[key] = pa.array(cells, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    return pa.table({name: values for name, values in columns.items() if name not in plan.without})


def _write_meta(root: Path, plan: Plan, episodes: list[dict[str, Any]], data_path: str, video_path: str) -> None:
    meta = root / "meta"
    meta.mkdir(parents=True, exist_ok=True)
    task = {"task_index": 0, "task": "Put the cube into the bowl."}
    stats = [{"observation.state": {"min": [0.0, -1.0], "max": [i + 1.0, 1.0]}} for i in range(len(episodes))]
    if plan.version == "v3.0":
        places = plan.episode_files or [(0, 0)] * len(episodes)
        data_places = plan.data_files or [(0, 0)] * len(episodes)
        files: dict[Path, list[dict[str, Any]]] = {}
        for i, (chunk, file) in enumerate(places):
            path = meta / f"episodes/chunk-{chunk:03d}/file-{file:03d}.parquet"
            own = {"data/chunk_index": data_places[i][0], "data/file_index": data_places[i][1]}
            own |= {"meta/episodes/chunk_index": chunk, "meta/episodes/file_index": file}
            own |= {f"stats/observation.state/{name}": value for name, value in stats[i]["observation.state"].items()}
            row = {name: value for name, value in (episodes[i] | own).items() if name not in plan.without}
            files.setdefault(path, []).append(row)
        for path, rows in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist(rows), path)
        pq.write_table(pa.Table.from_pylist([task]), meta / "tasks.parquet")
    else:
        kept = [{name: value for name, value in row.items() if name not in plan.without} for row in episodes]
        _write_lines(meta / "episodes.jsonl", kept)
        _write_lines(meta / "tasks.jsonl", [task])
        if plan.version == "v2.1":
            own_stats = [{"episode_index": row["episode_index"], "stats": stats[i]} for i, row in enumerate(episodes)]
            _write_lines(meta / "episodes_stats.jsonl", own_stats)
    (meta / "info.json").write_text(json.dumps(_info(plan, data_path, video_path)))


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _info(plan: Plan, data_path: str, video_path: str) -> dict[str, Any]:
    camera = {"shape": [HEIGHT, WIDTH, 3], "names": ["height", "width", "channels"]}
    features: dict[str, Any] = {key: camera | {"dtype": "video"} for key in plan.videos}
    features |= {key: camera | {"dtype": "image"} for key in plan.images}
    features |= {
        "observation.state": {"dtype": "float32", "shape": [3], "names": None},
        "action": {"dtype": "float64", "shape": [2], "names": None},
        "next.reward": {"dtype": "float32", "shape": [1], "names": None},
        "next.done": {"dtype": "bool", "shape": [1], "names": None},
        "note": {"dtype": "string", "shape": [1], "names": None},
        "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    }
    features |= {
        name: {"dtype": "int64", "shape": [1], "names": None}
        for name in ("frame_index", "episode_index", "index", "task_index")
    }
    return {
        "codebase_version": plan.version,
        "robot_type": "drawn",
        "total_episodes": len(plan.lengths),
        "total_frames": sum(plan.lengths),
        "chunks_size": plan.chunks_size,
        "fps": FPS,
        "data_path": data_path,
        "video_path": video_path if plan.videos else None,
        "features": features,
    }
