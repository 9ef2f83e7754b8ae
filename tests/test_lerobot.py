# SPDX-License-Identifier: Apache-2.0
"""`daft_sparsevideo.lerobot`, held against Daft's own reader, and beyond it against what the made pictures say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import daft
import daft.datasets.lerobot as daft_lerobot
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from daft import DataFrame, DataType, col
from daft.exceptions import DaftCoreException

from daft_sparsevideo import dataset_layout, decode_frames, errors, lerobot
from lerobot_dataset import FPS, HEIGHT, TOP, WIDTH, WRIST, Plan, number_at, png, state_at, write_dataset
from scenes import number_of, numbered

VERSIONS = ("v2.0", "v2.1", "v3.0")
SIDE = "observation.images.side"
OWN_COLUMNS = {f"videos/{key}/{name}" for key in (TOP, WRIST) for name in ("from_timestamp", "to_timestamp")}
ROLLOVER = {TOP: [(0, 0), (0, 1), (0, 1), (1, 0)], WRIST: [(0, 0), (0, 0), (0, 1), (0, 1)]}
"""Four episodes; the cameras go on to the next file at different ones."""


@pytest.fixture(scope="module", params=VERSIONS)
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two episodes, two cameras, in each version's own layout."""
    return str(write_dataset(tmp_path_factory.mktemp("lerobot") / request.param, Plan(version=request.param)))


@pytest.fixture(scope="module")
def v3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four episodes over several files of everything, and a third camera whose images lie in the data."""
    plan = Plan(
        lengths=(9, 12, 7, 10),
        videos=ROLLOVER,
        images=[SIDE],
        data_files=[(0, 0), (0, 0), (0, 1), (1, 0)],
        episode_files=[(0, 0), (0, 0), (0, 1), (0, 1)],
    )
    return write_dataset(tmp_path_factory.mktemp("lerobot") / "v3", plan)


def cells(frame: DataFrame, columns: list[str], by: str = "index") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = frame.sort(by).select(*columns).to_arrow().to_pylist()
    return rows


def assert_same_cells(ours: DataFrame, daft_s: DataFrame, extra: set[str], by: str = "index") -> None:
    assert set(ours.column_names) == set(daft_s.column_names) | extra
    kinds = [(name, ours.schema()[name].dtype) for name in daft_s.column_names]
    assert kinds == [(name, daft_s.schema()[name].dtype) for name in daft_s.column_names]
    assert cells(ours, daft_s.column_names, by) == cells(daft_s, daft_s.column_names, by)


def assert_same_pictures(ours: DataFrame, daft_s: DataFrame, cameras: list[str]) -> None:
    assert set(ours.column_names) == set(daft_s.column_names)
    mine, theirs = ours.sort("index").to_pydict(), daft_s.sort("index").to_pydict()
    for key in cameras:
        assert len(mine[key]) == len(theirs[key]) > 0
        for picture, right in zip(mine[key], theirs[key], strict=True):
            np.testing.assert_array_equal(picture, right)


def numbers(pictures: list[npt.NDArray[np.uint8] | None]) -> list[int | None]:
    return [None if picture is None else number_of(picture) for picture in pictures]


# Beside Daft's own reader


@pytest.mark.parametrize("include_stats", [False, True])
def test_frames_equal_those_of_dafts_reader(dataset: str, *, include_stats: bool) -> None:
    ours = lerobot.read(dataset, include_stats=include_stats)
    assert_same_cells(ours, daft_lerobot.read(dataset, include_stats=include_stats), OWN_COLUMNS)


@pytest.mark.parametrize("flags", [{}, {"include_meta": True}, {"include_stats": True}])
def test_episodes_equal_those_of_dafts_reader(dataset: str, flags: dict[str, bool]) -> None:
    ours, daft_s = (reader.read_episodes(dataset, **flags) for reader in (lerobot, daft_lerobot))
    assert_same_cells(ours, daft_s, set(), "episode_index")
    ours, daft_s = (
        reader.read_episodes(dataset, include_video_metadata=True, **flags) for reader in (lerobot, daft_lerobot)
    )
    ends = {name for name in OWN_COLUMNS if name.endswith("to_timestamp")}  # Daft has none for v2
    assert_same_cells(ours, daft_s, ends, "episode_index")


def test_frames_of_chosen_episodes_equal_those_of_dafts_reader(dataset: str) -> None:
    ours, daft_s = (
        reader.load_episode_frames(reader.read_episodes(dataset).where(col("length") > 10), dataset)
        for reader in (lerobot, daft_lerobot)
    )
    assert_same_cells(ours, daft_s, set())
    assert ours.count_rows() == 12


def test_tasks_equal_those_of_dafts_reader(dataset: str) -> None:
    assert lerobot.read_tasks(dataset).to_pydict() == daft_lerobot.read_tasks(dataset).to_pydict()


@pytest.mark.parametrize("load", [True, TOP, [WRIST], [WRIST, TOP]])
def test_pictures_equal_those_of_dafts_reader(dataset: str, load: Any) -> None:
    some = col("index").is_in([0, 8, 9, 13, 20])
    ours, daft_s = (reader.read(dataset, load_video_frames=load).where(some) for reader in (lerobot, daft_lerobot))
    kept = {name for name in OWN_COLUMNS if not any(name.startswith(f"videos/{key}/") for key in ours.column_names)}
    cameras = [key for key in (TOP, WRIST) if key in daft_s.column_names]
    assert_same_pictures(ours.exclude(*kept), daft_s, cameras)
    assert [name for name in ours.column_names if name in cameras] == [n for n in daft_s.column_names if n in cameras]


@pytest.mark.parametrize("name", ["tiny_h264", "h264_noisy", "hevc_noisy", "av1_noisy"])
def test_robot_datasets_equal_those_of_dafts_reader(robot_shard: Callable[[str, str], Path], name: str) -> None:
    root = str(robot_shard(name, "top").parents[3])
    keys = ("observation.images.top", "observation.images.right_wrist")
    offsets = {f"videos/{key}/{column}" for key in keys for column in ("from_timestamp", "to_timestamp")}
    for stats in (False, True):
        ours, daft_s = (reader.read(root, include_stats=stats) for reader in (lerobot, daft_lerobot))
        assert_same_cells(ours, daft_s, offsets)
    ours, daft_s = (
        reader.read_episodes(root, include_meta=True, include_stats=True, include_video_metadata=True)
        for reader in (lerobot, daft_lerobot)
    )
    assert_same_cells(ours, daft_s, set(), "episode_index")
    assert lerobot.read_tasks(root).to_pydict() == daft_lerobot.read_tasks(root).to_pydict()


@pytest.mark.parametrize("name", ["tiny_h264", "h264_noisy", "hevc_noisy", "av1_noisy"])
def test_robot_pictures_equal_those_of_dafts_reader(robot_shard: Callable[[str, str], Path], name: str) -> None:
    root = str(robot_shard(name, "top").parents[3])
    some = (col("episode_index") == 1) & col("frame_index").is_in([0, 1, 30, 59])
    ours, daft_s = (reader.read(root, load_video_frames=True).where(some) for reader in (lerobot, daft_lerobot))
    assert_same_pictures(ours, daft_s, ["observation.images.top", "observation.images.right_wrist"])


# Layouts


def test_cameras_may_go_on_to_the_next_file_at_different_episodes(v3: Path) -> None:
    rows = lerobot.read(v3, load_video_frames=[TOP, WRIST]).sort("index").to_pydict()
    for key in (TOP, WRIST):
        assert numbers(rows[key]) == [number_at(key, i) for i in range(38)]
    assert rows["episode_index"] == [0] * 9 + [1] * 12 + [2] * 7 + [3] * 10


@pytest.mark.parametrize(
    ("version", "data_path", "video_path"),
    [
        ("v3.0", "rows/{chunk_index}-{file_index:04d}.parquet", "film/{chunk_index:02d}/{video_key}.{file_index}.mp4"),
        ("v3.0", "rows.parquet", "film {{1}}/{video_key}/{file_index:03}/{chunk_index:d}.mp4"),
        ("v3.0", None, "film/{episode_chunk:03d}/{episode_index:06d}/{video_key}.mp4"),
        ("v2.1", "rows/{episode_index:d}.parquet", "{video_key}/{episode_chunk}/{episode_index:03d}.mp4"),
    ],
)
def test_path_templates_of_the_dataset_are_followed(
    tmp_path: Path, version: Any, data_path: str | None, video_path: str
) -> None:
    plan = Plan(version=version, data_path=data_path, video_path=video_path, videos={TOP: [(0, 3), (2, 0)]})
    if "episode_index" in video_path:
        plan.videos[TOP] = [(0, 0), (0, 1)]
    rows = lerobot.read(write_dataset(tmp_path, plan), load_video_frames=True).sort("index").to_pydict()
    assert numbers(rows[TOP]) == list(range(21))


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_numbers_longer_than_their_field_are_not_cut(tmp_path: Path, version: Any) -> None:
    plan = Plan(
        version=version,
        lengths=(3, 4),
        videos={TOP: [(1000, 12345), (1001, 12346)]},
        first_episode=1_000_000,
        data_path="data/{episode_index}.parquet" if version == "v2.1" else None,
    )
    root = write_dataset(tmp_path, plan)
    rows = lerobot.read(root, load_video_frames=True).sort("index").to_pydict()
    assert numbers(rows[TOP]) == list(range(7))


def test_a_relative_folder_is_a_folder(v3: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(v3.parent.parent)
    relative = f"{v3.parent.name}/{v3.name}"
    rows = lerobot.read(relative, load_video_frames=TOP).where(col("index") < 2)
    monkeypatch.chdir(tmp_path)  # paths are those of the moment when the query was written
    assert numbers(rows.sort("index").to_pydict()[TOP]) == [0, 1]
    assert dataset_layout.dataset_root(relative) == f"hf://datasets/{relative}"
    assert dataset_layout.dataset_root(" s3://bucket/set/ ") == "s3://bucket/set"


def test_optional_columns_may_be_missing(tmp_path: Path) -> None:
    ends = [f"videos/{key}/to_timestamp" for key in (TOP, WRIST)]
    for i, without in enumerate([ends, [*ends, "length"], ["length", "tasks"], ["timestamp", "index", "task_index"]]):
        root = write_dataset(tmp_path / str(i), Plan(without=without))
        rows = lerobot.read(root, load_video_frames=[TOP]).sort(["episode_index", "frame_index"])
        assert numbers(rows.to_pydict()[TOP]) == list(range(21))
        other = [f"videos/{WRIST}/{name}" for name in ("video", "from_timestamp", "to_timestamp")]
        assert [name in rows.column_names for name in other] == [True, True, i != 1]


# What a camera is


def test_a_camera_that_is_not_loaded_can_be_decoded_after_a_filter(dataset: str) -> None:
    frames = lerobot.read(dataset).where(col("index").is_in([3, 20]))
    shard, offset, end = (col(f"videos/{WRIST}/{name}") for name in ("video", "from_timestamp", "to_timestamp"))
    rows = (
        frames.with_column("wrist", decode_frames(shard, offset, col("timestamp"), end=end)).sort("index").to_pydict()
    )
    assert numbers(rows["wrist"]) == [number_at(WRIST, 3), number_at(WRIST, 20)]


def test_nothing_is_opened_before_rows_are_asked_for(tmp_path: Path) -> None:
    root = write_dataset(tmp_path, Plan())
    shutil.rmtree(root / "videos")
    frames = lerobot.read(root, load_video_frames=True)
    assert frames.schema()[TOP].dtype == DataType.image("RGB")
    assert frames.select("index").count_rows() == 21
    with pytest.raises(errors.ShardNotFoundError, match=r"file-000\.mp4"):
        frames.limit(1).collect()


def test_pictures_take_the_size_that_was_asked_for(v3: Path) -> None:
    frames = lerobot.read(v3, load_video_frames=True, height=32, width=40).where(col("index") == 12)
    assert [frames.schema()[key].dtype for key in (TOP, SIDE)] == [DataType.image("RGB", 32, 40)] * 2
    rows = frames.to_pydict()
    assert [rows[key][0].shape for key in (TOP, WRIST, SIDE)] == [(32, 40, 3)] * 3


def test_images_of_the_data_are_pictures_when_asked_for(v3: Path) -> None:
    assert lerobot.read(v3, load_video_frames=TOP).schema()[SIDE].dtype.is_struct()
    for load in (True, SIDE, [SIDE]):
        rows = lerobot.read(v3, load_video_frames=load).where(col("index").is_in([1, 2, 30])).sort("index").to_pydict()
        for index, picture in zip([1, 2, 30], rows[SIDE], strict=True):
            np.testing.assert_array_equal(picture, numbered(number_at(SIDE, index), WIDTH, HEIGHT))


def test_images_that_cannot_be_had_are_null_or_an_error(tmp_path: Path) -> None:
    root = write_dataset(tmp_path, Plan(images=[SIDE], videos={}))
    (root / "images/5.png").write_bytes(b"no picture")
    (root / "images/8.png").unlink()
    rows = lerobot.read(root, load_video_frames=True, on_error="null").sort("index").to_pydict()
    assert numbers(rows[SIDE]) == [None if i in {5, 8} else number_at(SIDE, i) for i in range(21)]
    with pytest.raises(DaftCoreException, match="image"):
        lerobot.read(root, load_video_frames=True).where(col("index") == 5).collect()
    with pytest.raises(FileNotFoundError, match=r"8\.png"):
        lerobot.read(root, load_video_frames=True).where(col("index") == 8).collect()


def test_images_may_be_bare_bytes(tmp_path: Path) -> None:
    root = write_dataset(tmp_path, Plan(images=[SIDE], videos={}))
    replace_column(root, SIDE, [png(numbered(i, WIDTH, HEIGHT)) for i in range(21)])
    rows = lerobot.read(root, load_video_frames=SIDE).sort("index").to_pydict()
    assert numbers(rows[SIDE]) == list(range(21))


def test_a_time_outside_the_episode_is_an_error_and_not_its_neighbour(tmp_path: Path) -> None:
    root = write_dataset(tmp_path, Plan())
    times_s = [i / FPS for i in (*range(9), *range(12))]
    times_s[6], times_s[9] = 1.1, -0.1
    replace_column(root, "timestamp", times_s)
    rows = lerobot.read(root, load_video_frames=[TOP], on_error="null").sort("index").to_pydict()
    assert numbers(rows[TOP]) == [None if i in {6, 9} else i for i in range(21)]
    for index, time_s in ((6, r"1\.1"), (9, r"0\.8")):
        with pytest.raises(errors.FrameOutOfRangeError, match=f"no frame at {time_s}"):
            lerobot.read(root, load_video_frames=[TOP]).where(col("index") == index).collect()


def replace_column(root: Path, name: str, values: list[Any]) -> None:
    """Write other values into a column of the first data file."""
    path = root / "data/chunk-000/file-000.parquet"
    table = pq.read_table(path)
    table = table.drop_columns([name]).append_column(name, pa.array(values))
    pq.write_table(table, path)


# Windows


def window(index: int, steps: list[int], bounds: list[int]) -> tuple[list[int], list[bool]]:
    """LeRobot's rule: the frames of a window, kept inside the episode, and which of them were not."""
    first = max(b for b in bounds if b <= index)
    after = min(b for b in bounds if b > index)
    asked = [index + step for step in steps]
    return [min(max(i, first), after - 1) for i in asked], [not first <= i < after for i in asked]


BOUNDS = [0, 9, 21, 28, 38]
STEPS = [-9, -2, 0, 1, 3]
DELTAS = [step / FPS for step in STEPS]


def test_windows_of_numbers_follow_lerobots_rule(v3: Path) -> None:
    keys = ["observation.state", "action", "next.reward", "next.done", "task_index"]
    frames = lerobot.read(v3, delta_timestamps=dict.fromkeys(keys, DELTAS))
    kinds = {key: frames.schema()[key].dtype for key in keys}
    assert kinds["observation.state"] == DataType.tensor(DataType.float32(), (5, 3))
    assert kinds["action"] == DataType.tensor(DataType.float64(), (5, 2))
    assert kinds["next.reward"] == DataType.tensor(DataType.float32(), (5,))
    rows = frames.sort("index").to_pydict()
    assert rows["index"] == list(range(38))
    for index in range(38):
        shown, is_pad = window(index, STEPS, BOUNDS)
        np.testing.assert_array_equal(rows["observation.state"][index], np.array([state_at(i) for i in shown], "f4"))
        np.testing.assert_array_equal(rows["action"][index], [[i, i + 1] for i in shown])
        np.testing.assert_array_equal(rows["next.reward"][index], [i / 2 for i in shown])
        np.testing.assert_array_equal(rows["next.done"][index], [i + 1 in BOUNDS for i in shown])
        assert [list(rows[f"{key}_is_pad"][index]) for key in keys] == [is_pad] * 5
    assert frames.schema()["action_is_pad"].dtype == DataType.fixed_size_list(DataType.bool(), 5)


def test_windows_do_not_depend_on_the_rows_that_are_kept(v3: Path) -> None:
    frames = lerobot.read(v3, delta_timestamps={"next.reward": [-0.1, 0.0, 0.1]})
    rows = frames.where(col("index").is_in([9, 15, 37])).sort("index").to_pydict()
    assert [list(values) for values in rows["next.reward"]] == [[4.5, 4.5, 5.0], [7.0, 7.5, 8.0], [18.0, 18.5, 18.5]]


def test_windows_of_images_follow_lerobots_rule(v3: Path) -> None:
    frames = lerobot.read(v3, delta_timestamps={SIDE: DELTAS})
    assert frames.schema()[SIDE].dtype == DataType.tensor(DataType.uint8(), (5, HEIGHT, WIDTH, 3))
    check_windows(frames, SIDE)


def test_windows_of_cameras_follow_lerobots_rule(v3: Path) -> None:
    frames = lerobot.read(v3, delta_timestamps={TOP: DELTAS, WRIST: DELTAS})
    assert frames.schema()[TOP].dtype == DataType.tensor(DataType.uint8(), (5, HEIGHT, WIDTH, 3))
    for key in (TOP, WRIST):
        check_windows(frames, key)


@pytest.mark.parametrize("version", ["v2.0", "v2.1"])
def test_windows_end_with_the_episode_where_it_has_a_file_of_its_own(tmp_path: Path, version: Any) -> None:
    root = write_dataset(tmp_path, Plan(version=version))
    check_windows(lerobot.read(root, delta_timestamps={TOP: DELTAS}), TOP, BOUNDS[:3])


def check_windows(frames: DataFrame, key: str, bounds: list[int] = BOUNDS) -> None:
    rows = frames.select("index", key, f"{key}_is_pad").sort("index").to_pydict()
    for index in range(bounds[-1]):
        shown, is_pad = window(index, STEPS, bounds)
        assert numbers(list(rows[key][index])) == [number_at(key, i) for i in shown]
        assert list(rows[f"{key}_is_pad"][index]) == is_pad


def test_a_camera_can_be_a_window_beside_one_that_is_a_picture(v3: Path) -> None:
    deltas = {WRIST: [-0.1, 0.0], "action": [0.0, 0.1]}
    frames = lerobot.read(v3, load_video_frames=[TOP, WRIST], delta_timestamps=deltas, height=HEIGHT, width=WIDTH)
    row = frames.where(col("index") == 21).to_pydict()
    assert numbers(row[TOP]) == [21]
    assert numbers(list(row[WRIST][0])) == [number_at(WRIST, 21)] * 2
    assert list(row[f"{WRIST}_is_pad"][0]) == [True, False]
    np.testing.assert_array_equal(row["action"][0], [[21, 22], [22, 23]])
    assert not [name for name in frames.column_names if name.startswith("videos/") or name.endswith("/window")]


# Errors, when the query is written


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"load_video_frames": "top"}, ValueError, rf"'top' is no camera of .*; it has '{TOP}', '{WRIST}', '{SIDE}'"),
        ({"load_video_frames": [TOP, "action"]}, ValueError, "'action' is no camera"),
        ({"load_video_frames": 3}, TypeError, "must be True, False, or keys of cameras, not 3"),
        ({"load_video_frames": [3]}, TypeError, r"not \[3\]"),
        ({"height": -4, "width": 8}, ValueError, "height is -4"),
        ({"height": 4}, ValueError, "give both"),
        ({"match": "last"}, ValueError, "match is 'last'"),
        ({"tolerance_s": -1}, ValueError, "tolerance_s is -1"),
        ({"on_error": "ignore"}, ValueError, "on_error is 'ignore'"),
        ({"batch_size": 0}, ValueError, "batch_size is 0"),
        ({"num_threads": 0}, ValueError, "num_threads is 0"),
        ({"delta_timestamps": {"top": [0.0]}}, ValueError, f"'top' is no feature of .*; it has '{TOP}'"),
        ({"delta_timestamps": {TOP: []}}, ValueError, "is empty"),
        ({"delta_timestamps": {TOP: [0.05]}}, ValueError, r"0\.05 s is not a multiple of the frame interval 1/10 s"),
        ({"delta_timestamps": {"action": [float("nan")]}}, ValueError, "nan s is not a multiple"),
        ({"delta_timestamps": {"action": 0.1}}, TypeError, "must be a list of seconds, not 0.1"),
        ({"delta_timestamps": [0.1]}, TypeError, "must be a dict"),
        ({"delta_timestamps": {"timestamp": [0.1]}}, ValueError, "'timestamp' tells the row itself"),
        ({"delta_timestamps": {"note": [0.1]}}, ValueError, "column 'note' of .* is String"),
    ],
)
def test_wrong_arguments_are_refused(v3: Path, options: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        lerobot.read(v3, **options)


def test_a_wrong_path_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for reader in (lerobot.read, lerobot.read_episodes, lerobot.info):
        with pytest.raises(FileNotFoundError, match=rf"no LeRobot dataset at {tmp_path}/gone: .*/gone/meta/info\.json"):
            reader(tmp_path / "gone")

    def refuse(url: str, **_: Any) -> None:
        raise FileNotFoundError(url)

    monkeypatch.setattr(daft, "open_file", refuse)
    with pytest.raises(
        FileNotFoundError, match=r"'robots/pusht' is no folder here, so it was taken for .* the Hugging Face hub"
    ):
        lerobot.read("robots/pusht")
    with pytest.raises(FileNotFoundError, match=r"robots/pusht/meta/info\.json$"):
        lerobot.read("hf://datasets/robots/pusht")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"codebase_version": "v1.6"},
            r"info\.json: codebase_version is 'v1\.6'; v2\.0, v2\.1 and v3\.x are supported",
        ),
        ({"codebase_version": "v4.0"}, "codebase_version is 'v4.0'"),
        ({"codebase_version": None}, "codebase_version is None"),
        ({"video_path": "{camera}.mp4"}, r"video_path '\{camera\}\.mp4' has the unknown field \{camera\}; known are"),
        ({"video_path": "{file_index:x}.mp4"}, "format 'x' is not supported"),
    ],
)
def test_a_dataset_that_is_not_understood_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    root = write_dataset(tmp_path, Plan(lengths=(2,), videos={TOP: [(0, 0)]}))
    info = json.loads((root / "meta/info.json").read_text())
    (root / "meta/info.json").write_text(json.dumps(info | change))
    with pytest.raises(ValueError, match=message):
        lerobot.read(root)


@pytest.mark.parametrize("text", ["not json", "[]"])
def test_an_info_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta/info.json").write_text(text)
    with pytest.raises(ValueError, match=r"info\.json is not"):
        lerobot.read(tmp_path)


@pytest.mark.parametrize(
    ("without", "options", "message"),
    [
        ([f"videos/{TOP}/file_index"], {}, f"no column 'videos/{TOP}/file_index', which tells the shard"),
        ([f"videos/{TOP}/from_timestamp"], {}, f"no column 'videos/{TOP}/from_timestamp'"),
        (["episode_index"], {}, "no column 'episode_index'"),
        (["timestamp", "frame_index"], {"load_video_frames": True}, "no column 'timestamp'"),
        (["frame_index"], {"delta_timestamps": {"action": [0.1]}}, "no column 'frame_index'"),
        (["action"], {"delta_timestamps": {"action": [0.1]}}, "no column 'action'"),
        (
            [f"videos/{TOP}/to_timestamp", "length"],
            {"delta_timestamps": {TOP: [0.1]}},
            "no column .*to_timestamp.*'length'",
        ),
    ],
)
def test_columns_that_are_needed_are_named(
    tmp_path: Path, without: list[str], options: dict[str, Any], message: str
) -> None:
    root = write_dataset(tmp_path, Plan(lengths=(2,), videos={TOP: [(0, 0)]}, without=without))
    with pytest.raises(ValueError, match=message):
        lerobot.read(root, **options)


def test_columns_of_the_wrong_type_are_named(tmp_path: Path) -> None:
    root = write_dataset(tmp_path, Plan(lengths=(2,), videos={TOP: [(0, 0)]}, images=[SIDE]))
    replace_column(root, SIDE, [1, 2])
    with pytest.raises(TypeError, match=f"column '{SIDE}' must be images .*, but is Int64"):
        lerobot.read(root, load_video_frames=SIDE)
    replace_column(root, "timestamp", ["0", "1"])
    with pytest.raises(TypeError, match=r"column 'timestamp', which tells the time of each frame, must be .* String"):
        lerobot.read(root, load_video_frames=TOP)
