# SPDX-License-Identifier: Apache-2.0
"""A small LeRobot v3 dataset, drawn on the spot: an arm carries a cube to a bowl, seen by two cameras.

The layout is that of real datasets: one MP4 per camera in which all episodes lie back to back, one Parquet file with a
row per frame, and one with a row per episode that says where each episode begins in each video.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageDraw

FPS = 30
WIDTH, HEIGHT = 640, 480
EPISODE_LENGTHS = (141, 118, 127, 104)  # frames
CAMERAS = ("observation.images.top", "observation.images.wrist")
TASK = "Put the cube into the bowl."
# Long groups of pictures, as in most recorded video: a key frame every 250 frames at most.
ENCODER_OPTIONS = {"preset": "medium", "crf": "23", "g": "250"}

Picture = npt.NDArray[np.uint8]
Point = tuple[float, float]

_BASE: Point = (320.0, 470.0)  # where the arm stands on the table, in pixels of the top camera
_LINKS = (240.0, 230.0)
_HOME: Point = (470.0, 250.0)
_BOWL: Point = (190.0, 180.0)


@dataclass(frozen=True)
class Moment:
    """The world at one frame."""

    hand: Point
    cube: Point
    grip: float  # 0 open, 1 closed
    joints: Point  # radians


def write_robot_dataset(root: Path, *, episode_lengths: Sequence[int] = EPISODE_LENGTHS, seed: int = 1) -> Path:
    """Draw, encode and write the dataset into the folder `root`.

    Args:
        root: The dataset's folder; made if it is not there.
        episode_lengths: Frames of each episode.
        seed: Of where the cubes lie and of the cameras' noise.

    Returns:
        `root`.

    """
    chance = np.random.default_rng(seed)
    episodes = [list(_move(length, chance)) for length in episode_lengths]
    for camera, draw in zip(CAMERAS, (_draw_top, _draw_wrist), strict=True):
        path = root / f"videos/{camera}/chunk-000/file-000.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        _encode(path, _film(draw, episodes, np.random.default_rng(seed)))
    _write_tables(root, episodes)
    return root


def _move(length: int, chance: np.random.Generator) -> Iterator[Moment]:
    """One episode: to the cube, grip, to the bowl, let go, home."""
    start = (float(chance.uniform(380, 475)), float(chance.uniform(120, 330)))
    stops = [_HOME, start, start, _BOWL, _BOWL, _HOME]
    shares = np.array([0.28, 0.07, 0.35, 0.07, 0.23]) * (length - 1)
    begins = np.concatenate([[0], np.cumsum(shares)])
    for frame in range(length):
        phase = min(int(np.searchsorted(begins, frame, side="right")) - 1, len(shares) - 1)
        done = (frame - begins[phase]) / shares[phase]
        smooth = done * done * (3 - 2 * done)
        (x0, y0), (x1, y1) = stops[phase], stops[phase + 1]
        hand = (x0 + (x1 - x0) * smooth, y0 + (y1 - y0) * smooth)
        grip = (0.0, smooth, 1.0, 1 - smooth, 0.0)[phase]
        cube = start if phase < 2 else hand if phase == 2 else _BOWL
        yield Moment(hand, cube, grip, _joints(hand))


def _joints(hand: Point) -> Point:
    """Angles of shoulder and elbow that bring the hand there (law of cosines)."""
    x, y = hand[0] - _BASE[0], _BASE[1] - hand[1]
    first, second = _LINKS
    reach = min(np.hypot(x, y), first + second - 1)
    elbow = np.arccos((reach**2 - first**2 - second**2) / (2 * first * second))
    shoulder = np.arctan2(y, x) - np.arctan2(second * np.sin(elbow), first + second * np.cos(elbow))
    return float(shoulder), float(elbow)


def _film(draw: Any, episodes: list[list[Moment]], chance: np.random.Generator) -> Iterator[Picture]:
    """All episodes of one camera with the noise of a sensor."""
    noise = chance.normal(0, 2.5, (HEIGHT + 64, WIDTH + 64, 1)).astype(np.int16)
    for number, episode in enumerate(episodes):
        table = _table(number)
        for moment in episode:
            y, x = chance.integers(0, 64, 2)
            picture = draw(table, moment).astype(np.int16) + noise[y : y + HEIGHT, x : x + WIDTH]
            yield np.clip(picture, 0, 255).astype(np.uint8)


def _table(episode: int) -> Image.Image:
    """A wooden table with a bowl and a cloth that has another colour in each episode."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    grain = 12 * np.sin(x / 9 + 3 * np.sin(y / 70)) + 6 * np.sin(x / 2.3 + y / 50)
    light = 1 - 0.25 * np.hypot(x - WIDTH / 2, y - HEIGHT / 2) / WIDTH
    wood = (np.array([172, 134, 92], np.float32) + grain[..., None]) * light[..., None]
    table = Image.fromarray(np.clip(wood, 0, 255).astype(np.uint8))
    pen = ImageDraw.Draw(table)
    cloth = ((70, 110, 150), (120, 90, 140), (80, 130, 100), (150, 120, 70))[episode % 4]
    pen.rectangle((350, 80, 600, 370), fill=cloth)
    for step in range(360, 600, 24):
        pen.line((step, 80, step, 370), fill=tuple(c + 18 for c in cloth), width=3)
    _disc(pen, _BOWL, 62, (215, 215, 220))
    _disc(pen, _BOWL, 50, (150, 150, 160))
    return table


def _draw_top(table: Image.Image, moment: Moment) -> Picture:
    """A camera that stands still above the table."""
    picture = table.copy()
    pen = ImageDraw.Draw(picture)
    _draw_cube(pen, moment.cube, 17)
    shoulder = moment.joints[0]
    elbow = (_BASE[0] + _LINKS[0] * np.cos(shoulder), _BASE[1] - _LINKS[0] * np.sin(shoulder))
    for begin, end, width in ((_BASE, elbow, 34), (elbow, moment.hand, 26)):
        pen.line((*begin, *end), fill=(60, 62, 70), width=width)
        pen.line((*begin, *end), fill=(230, 140, 40), width=width - 12)
    for joint, radius in ((_BASE, 34), (elbow, 21), (moment.hand, 15)):
        _disc(pen, joint, radius, (50, 52, 58))
    gap = 16 - 8 * moment.grip
    for side in (-1, 1):
        x, y = moment.hand[0] + side * gap, moment.hand[1]
        pen.rectangle((x - 4, y - 26, x + 4, y), fill=(30, 30, 34))
    return np.asarray(picture)


def _draw_wrist(table: Image.Image, moment: Moment) -> Picture:
    """A camera on the hand: the whole view moves."""
    scene = table.copy()
    _draw_cube(ImageDraw.Draw(scene), moment.cube, 17)
    x, y = moment.hand
    picture = scene.transform(
        (WIDTH, HEIGHT), Image.Transform.AFFINE, (0.5, 0, x - 160, 0, 0.5, y - 120), Image.Resampling.BILINEAR
    )
    pen = ImageDraw.Draw(picture)
    gap = 62 - 24 * moment.grip
    for side in (-1, 1):
        middle = WIDTH / 2 + side * gap
        pen.polygon(((middle - 15, 480), (middle + 15, 480), (middle + 9, 215), (middle - 9, 215)), fill=(36, 36, 42))
    return np.asarray(picture)


def _draw_cube(pen: ImageDraw.ImageDraw, at: Point, half: float) -> None:
    x, y = at
    pen.rectangle((x - half, y - half, x + half, y + half), fill=(170, 30, 40))
    pen.rectangle((x - half + 5, y - half + 5, x + half - 5, y + half - 5), fill=(215, 60, 60))


def _disc(pen: ImageDraw.ImageDraw, at: Point, radius: float, fill: tuple[int, int, int]) -> None:
    pen.ellipse((at[0] - radius, at[1] - radius, at[0] + radius, at[1] + radius), fill=fill)


def _encode(path: Path, pictures: Iterator[Picture]) -> None:
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=FPS, options=ENCODER_OPTIONS)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for picture in pictures:
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        file.mux(stream.encode(None))


def _write_tables(root: Path, episodes: list[list[Moment]]) -> None:
    states = [np.array([(*moment.joints, moment.grip) for moment in episode], np.float32) for episode in episodes]
    actions = [np.concatenate([state[1:], state[-1:]]) for state in states]
    lengths = np.array([len(episode) for episode in episodes])
    begins = np.concatenate([[0], np.cumsum(lengths)])
    frame_index = np.concatenate([np.arange(length) for length in lengths])
    total = int(begins[-1])
    joints = pa.list_(pa.float32(), 3)
    frames = {
        "observation.state": pa.array(np.concatenate(states).tolist(), joints),
        "action": pa.array(np.concatenate(actions).tolist(), joints),
        "timestamp": (frame_index / FPS).astype(np.float32),
        "frame_index": frame_index,
        "episode_index": np.repeat(np.arange(len(episodes)), lengths),
        "index": np.arange(total),
        "task_index": np.zeros(total, np.int64),
    }
    zeros = np.zeros(len(episodes), np.int64)
    table: dict[str, Any] = {
        "episode_index": np.arange(len(episodes)),
        "tasks": [[TASK]] * len(episodes),
        "length": lengths,
        "data/chunk_index": zeros,
        "data/file_index": zeros,
        "dataset_from_index": begins[:-1],
        "dataset_to_index": begins[1:],
        "meta/episodes/chunk_index": zeros,
        "meta/episodes/file_index": zeros,
    }
    for camera in CAMERAS:
        table |= {
            f"videos/{camera}/chunk_index": zeros,
            f"videos/{camera}/file_index": zeros,
            f"videos/{camera}/from_timestamp": begins[:-1] / FPS,
            f"videos/{camera}/to_timestamp": begins[1:] / FPS,
        }
    _write_parquet(root / "data/chunk-000/file-000.parquet", frames)
    _write_parquet(root / "meta/episodes/chunk-000/file-000.parquet", table)
    _write_parquet(root / "meta/tasks.parquet", {"task_index": np.zeros(1, np.int64), "task": [TASK]})
    numbers = {"observation.state": np.concatenate(states), "action": np.concatenate(actions)}
    (root / "meta/stats.json").write_text(json.dumps({name: _stats(values) for name, values in numbers.items()}))
    (root / "meta/info.json").write_text(json.dumps(_info(len(episodes), total), indent=2))


def _write_parquet(path: Path, columns: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def _stats(values: npt.NDArray[np.float32]) -> dict[str, list[float]]:
    kinds = {"min": values.min(0), "max": values.max(0), "mean": values.mean(0), "std": values.std(0)}
    return {name: value.tolist() for name, value in kinds.items()} | {"count": [len(values)]}


def _info(num_episodes: int, num_frames: int) -> dict[str, Any]:
    video = {
        "dtype": "video",
        "shape": [HEIGHT, WIDTH, 3],
        "names": ["height", "width", "channels"],
        "info": {
            "video.height": HEIGHT,
            "video.width": WIDTH,
            "video.codec": "h264",
            "video.pix_fmt": "yuv420p",
            "video.is_depth_map": False,
            "video.fps": FPS,
            "video.channels": 3,
            "has_audio": False,
        },
    }
    joints = {"dtype": "float32", "shape": [3], "names": ["shoulder", "elbow", "grip"]}
    numbers = {name: {"dtype": "int64", "shape": [1], "names": None} for name in ("frame_index", "episode_index")}
    numbers |= {name: {"dtype": "int64", "shape": [1], "names": None} for name in ("index", "task_index")}
    return {
        "codebase_version": "v3.0",
        "robot_type": "drawn_arm",
        "total_episodes": num_episodes,
        "total_frames": num_frames,
        "total_tasks": 1,
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": FPS,
        "splits": {"train": f"0:{num_episodes}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": dict.fromkeys(CAMERAS, video)
        | {"observation.state": joints, "action": joints}
        | {"timestamp": {"dtype": "float32", "shape": [1], "names": None}}
        | numbers,
    }
