# SPDX-License-Identifier: Apache-2.0
"""`decode_windows`, and the ends of episodes, held against PyAV's sequential decode."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import daft
import daft.pickle
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from daft import DataType, Expression, col, lit

from daft_sparsevideo import (
    VideoDecoder,
    decode_frames,
    decode_stats,
    decode_windows,
    errors,
    reset_decode_stats,
)
from daft_sparsevideo.open_shards import open_shards
from encoding import encode
from oracle import decode_sequentially, rgb_of
from small_clip import Clip, make_clip, rotate

SIZE: dict[str, Any] = {"height": 64, "width": 96}
LENGTHS = (13, 7, 17, 9, 14)  # of the clip's episodes
FIRSTS = np.concatenate([[0], np.cumsum(LENGTHS)]).tolist()
FPS = 30


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Clip:
    """One shard of five episodes."""
    return make_clip(tmp_path_factory.mktemp("windows") / "top.mp4", frames=sum(LENGTHS), params="keyint=30:bframes=3")


@pytest.fixture(autouse=True)
def fresh_process() -> None:
    open_shards.clear()


def episode_rows(clip: Clip, dtype: type[np.floating] = np.float64) -> daft.DataFrame:
    """A row for every frame of every episode; offsets and ends are accumulated, as LeRobot does."""
    rows: dict[str, list[Any]] = {"episode": [], "number": [], "offset": [], "end": [], "timestamp": []}
    offset = dtype(0)
    for episode, length in enumerate(LENGTHS):
        end = dtype(offset + dtype(length / FPS))
        for number in range(length):
            for name, value in zip(rows, (episode, number, offset, end, dtype(number / FPS)), strict=True):
                rows[name].append(value)
        offset = end
    kinds = {name: np.array(values) for name, values in rows.items()}
    return daft.from_pydict(kinds).with_column("shard", lit(clip.name))


def lerobot_window(episode: int, number: int, deltas: list[int]) -> tuple[list[int], list[bool]]:
    """LeRobot's rule in frames of the shard: clamp to the episode, and tell what was clamped."""
    first, last = FIRSTS[episode], FIRSTS[episode + 1] - 1
    asked = [first + number + delta for delta in deltas]
    return [min(max(i, first), last) for i in asked], [not first <= i <= last for i in asked]


def window(**options: Any) -> Expression:
    defaults: dict[str, Any] = {"end": col("end")} | SIZE
    return decode_windows(col("shard"), col("offset"), col("timestamp"), **(defaults | options))


def assert_windows(rows: dict[str, list[Any]], clip: Clip, deltas: list[int]) -> None:
    for episode, number, got in zip(rows["episode"], rows["number"], rows["window"], strict=True):
        frames, is_pad = lerobot_window(episode, number, deltas)
        assert got["is_pad"] == is_pad, (episode, number)
        np.testing.assert_array_equal(got["frames"], np.stack([clip.frames[i] for i in frames]))


@pytest.mark.parametrize("match", ["nearest", "played"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_windows_follow_lerobots_rule_at_the_ends_of_episodes(clip: Clip, dtype: type[np.floating], match: str) -> None:
    deltas = [-20, -6, -1, 0, 1, 2, 30]
    rows = episode_rows(clip, dtype)
    seconds = [delta / FPS for delta in deltas]
    got = rows.with_column("window", window(deltas_s=seconds, match=match)).to_pydict()
    assert_windows(got, clip, deltas)
    strict = rows.with_column("window", window(deltas_s=seconds, match=match, tolerance_s=1e-4)).to_pydict()
    assert_windows(strict, clip, deltas)


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.list_(pa.float64(), 3)], ids=["list", "fixed"])
def test_lists_of_timestamps_give_the_same_as_deltas(clip: Clip, kind: pa.DataType) -> None:
    deltas = [-3, 0, 4]
    rows = episode_rows(clip).to_pydict()
    lists = [[t + delta / FPS for delta in deltas] for t in rows["timestamp"]]
    table = pa.table(rows | {"timestamp": pa.array(lists, kind)})
    frame = daft.from_arrow(table)
    assert frame.schema()["timestamp"].dtype.is_fixed_size_list() == pa.types.is_fixed_size_list(kind)
    assert_windows(frame.with_column("window", window(length=3)).to_pydict(), clip, deltas)


def test_column_is_a_struct_of_a_fixed_shape_tensor_and_a_mask(clip: Clip) -> None:
    frame = episode_rows(clip).select(window(deltas_s=[0.0, 0.1]))
    is_pad = DataType.fixed_size_list(DataType.bool(), 2)
    assert frame.schema()["window"].dtype == DataType.struct(
        {"frames": DataType.tensor(DataType.uint8(), (2, 64, 96, 3)), "is_pad": is_pad}
    )
    assert frame.to_arrow().schema == frame.schema().to_pyarrow_schema()
    empty = episode_rows(clip).where(col("episode") > 99).select(window(deltas_s=[0.0, 0.1]))
    assert empty.to_pydict() == {"window": []}


def test_windows_are_decoded_into_the_column_itself(clip: Clip, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    real = np.empty

    def watched(shape: Any, *args: Any, **options: Any) -> Any:
        made = real(shape, *args, **options)
        if made.nbytes == 10 * 3 * 64 * 96 * 3:
            seen.append((made.ctypes.data, made.nbytes))
        return made

    monkeypatch.setattr("daft_sparsevideo.batch.np.empty", watched)
    table = episode_rows(clip).limit(10).select(window(deltas_s=[-0.1, 0.0, 0.1])).to_arrow()
    pixels = table["window"].chunk(0).field("frames").storage.values.buffers()[1]
    assert [(pixels.address, pixels.size)] == seen


def test_all_windows_of_a_shard_are_one_request(clip: Clip) -> None:
    deltas = [-2, -1, 0]
    rows = (
        episode_rows(clip).where(col("episode") == 2).with_column("window", window(deltas_s=[d / FPS for d in deltas]))
    )
    reset_decode_stats()
    assert_windows(rows.to_pydict(), clip, deltas)
    stats = decode_stats()
    together = VideoDecoder(clip.path).plan_at(range(FIRSTS[2], FIRSTS[3]))
    assert (stats.requested, stats.unique) == (17 * 3, 17)
    assert (stats.reconstructed, stats.segments) == (together.reconstructed, together.segments)
    assert stats.shards_opened == 1


@pytest.mark.parametrize("error", [1e-7, -1e-7, 1e-9, -1e-9])
def test_rounding_of_ends_and_offsets_shows_no_neighbour(clip: Clip, error: float) -> None:
    rows = episode_rows(clip).with_columns({name: col(name) + error for name in ("offset", "end")})
    deltas = [-1, 0, 1]
    assert_windows(rows.with_column("window", window(deltas_s=[d / FPS for d in deltas])).to_pydict(), clip, deltas)
    inside = rows.with_column("frame", decode_frames(col("shard"), col("offset"), col("timestamp"), end=col("end")))
    for episode, number, got in zip(
        *(inside.to_pydict()[name] for name in ("episode", "number", "frame")), strict=True
    ):
        np.testing.assert_array_equal(got, clip.frames[FIRSTS[episode] + number])


def test_container_that_rounds_times_to_milliseconds_shows_no_neighbour(tmp_path: Path) -> None:
    pictures = (np.full((64, 96, 3), 20 * (1 + sum(i >= first for first in FIRSTS[1:])), np.uint8) for i in range(60))
    path = encode(tmp_path / "ms.mkv", pictures, params="keyint=30:bframes=2:qp=10")
    rows = episode_rows(Clip(path, [], FPS))
    got = rows.with_column("window", window(deltas_s=[-1 / FPS, 0.0, 1 / FPS])).to_pydict()
    for episode, number, cell in zip(got["episode"], got["number"], got["window"], strict=True):
        assert cell["is_pad"] == lerobot_window(episode, number, [-1, 0, 1])[1]
        assert np.abs(cell["frames"].astype(int) - 20 * (episode + 1)).max() < 8, (episode, number)


def test_frames_outside_their_episode_are_errors(clip: Clip) -> None:
    first, stop = FIRSTS[1] / FPS, FIRSTS[2] / FPS
    half = 0.5 / FPS
    times = [-half * 1.01, -half * 0.99, 0.0, 6 / FPS, 6 / FPS + half * 1.2, 7 / FPS, 7 / FPS - 1e-9, 8 / FPS, -1.0]
    wanted: list[int | None] = [None, 13, 13, 19, 19, None, None, None, None]
    rows = daft.from_pydict({"t": times}).with_column("shard", lit(clip.name))
    for match in ("nearest", "played"):
        image = decode_frames(col("shard"), first, col("t"), end=stop, match=match, on_error="null")  # type: ignore[arg-type]
        got = rows.select(image).to_pydict()["frame"]
        for picture, right in zip(got, wanted, strict=True):
            assert (picture is None) == (right is None)
            if right is not None:
                np.testing.assert_array_equal(picture, clip.frames[right])
    beyond = decode_frames(clip.name, first, 0.5, end=stop)
    with pytest.raises(
        errors.FrameOutOfRangeError, match=r"0\.933333 s is outside its episode \[0\.433333, 0\.666667\)"
    ):
        rows.select(beyond).collect()
    with pytest.raises(errors.FrameOutOfRangeError, match=r"more than tolerance_s=0\.001"):
        rows.select(decode_frames(clip.name, first, 0.01, end=stop, tolerance_s=0.001)).collect()
    with pytest.raises(errors.FrameOutOfRangeError, match="is empty: its end is a time in the shard"):
        rows.select(decode_frames(clip.name, first, 0.0, end=first)).collect()


def test_wide_tolerance_does_not_reach_into_the_neighbour(clip: Clip) -> None:
    rows = episode_rows(clip)
    late = rows.where(col("episode") == 1).with_column("timestamp", col("timestamp") + 7 / FPS)
    options: dict[str, Any] = {"end": col("end"), "tolerance_s": 10.0, "on_error": "null"}
    got = late.select(decode_frames(col("shard"), col("offset"), col("timestamp"), **options)).to_pydict()
    assert got["frame"] == [None] * 7


def test_null_end_leaves_a_row_the_limits_of_the_shard(clip: Clip) -> None:
    rows = daft.from_pydict({"end": [0.5, None, math.nan], "t": [0.6] * 3}).with_column("shard", lit(clip.name))
    image = decode_frames(col("shard"), 0.0, col("t"), end=col("end"), on_error="null")
    outside, unlimited, no_time = rows.select(image).to_pydict()["frame"]
    assert outside is None
    np.testing.assert_array_equal(unlimited, clip.frames[18])
    assert no_time is None, "NaN is no end, and does not mean that there is none"


def test_window_to_the_end_of_the_shard(clip: Clip) -> None:
    last = len(clip.frames) - 1
    rows = daft.from_pydict(
        {"shard": [clip.name], "offset": [FIRSTS[4] / FPS], "timestamp": [(last - FIRSTS[4]) / FPS]}
    )
    got = rows.select(window(end=None, deltas_s=[-1.0, -1 / FPS, 0.0, 1 / FPS, 9.0])).to_pydict()["window"][0]
    assert got["is_pad"] == [True, False, False, True, True]
    wanted = [FIRSTS[4], last - 1, last, last, last]
    np.testing.assert_array_equal(got["frames"], np.stack([clip.frames[i] for i in wanted]))


def test_shard_that_ends_before_its_episode_is_an_error(clip: Clip) -> None:
    """The episode's last frame is not there: another one is not shown for it."""
    rows = episode_rows(clip).where(col("episode") == 4).limit(1)
    with pytest.raises(errors.FrameOutOfRangeError):
        rows.select(window(end=9.0, deltas_s=[20.0])).collect()
    with pytest.raises(errors.FrameOutOfRangeError):
        rows.select(window(end=9.0, deltas_s=[2.0])).collect()


def test_null_in_any_input_gives_a_null_window(clip: Clip) -> None:
    rows = daft.from_pydict(
        {
            "shard": [clip.name, None, clip.name, clip.name, clip.name],
            "offset": [0.0, 0.0, None, 0.0, 0.0],
            "timestamp": [0.1, 0.1, 0.1, None, 0.1],
            "end": [1.0, 1.0, 1.0, 1.0, None],
        }
    )
    got = rows.select(window(deltas_s=[0.0, 0.1])).to_pydict()["window"]
    assert [cell is None for cell in got] == [False, True, True, True, True]
    lists = daft.from_pydict({"timestamp": [[0.1, None], [0.1, 0.2], None]}).with_column("shard", lit(clip.name))
    listed = decode_windows(col("shard"), 0.0, col("timestamp"), end=None, length=2, **SIZE)
    got = lists.select(listed).to_pydict()["window"]
    assert [cell is None for cell in got] == [True, False, True]
    np.testing.assert_array_equal(got[1]["frames"], np.stack([clip.frames[3], clip.frames[6]]))


def test_lists_of_another_length_are_errors(clip: Clip) -> None:
    lists = daft.from_pydict({"timestamp": [[0.1], [0.1, 0.2], [0.0, 0.1, 0.2], []]})
    options: dict[str, Any] = {"end": None, "length": 2} | SIZE
    with pytest.raises(errors.WindowLengthError, match=r"top\.mp4 has 1 timestamps, but length=2"):
        lists.select(decode_windows(clip.name, 0.0, col("timestamp"), **options)).collect()
    rows = lists.select(decode_windows(clip.name, 0.0, col("timestamp"), on_error="null", **options))
    assert [cell is None for cell in rows.to_pydict()["window"]] == [True, False, True, True]


def test_failing_frame_makes_its_window_null_and_spares_the_others(clip: Clip, tmp_path: Path) -> None:
    rows = daft.from_pydict(
        {
            "shard": [clip.name, str(tmp_path / "gone.mp4"), clip.name],
            "offset": [0.0] * 3,
            "timestamp": [0.015, 0.0, 0.1],
            "end": [1.0] * 3,
        }
    )
    got = rows.select(window(deltas_s=[0.0, 0.1], tolerance_s=0.001, on_error="null")).to_pydict()["window"]
    assert [cell is None for cell in got] == [True, True, False]
    np.testing.assert_array_equal(got[2]["frames"], np.stack([clip.frames[3], clip.frames[6]]))
    message = (
        r"no frame at 0\.115000 s \(offset 0\.0 \+ timestamp 0\.015 \+ delta 0\.1\) of .*top\.mp4: the frame nearest"
    )
    with pytest.raises(errors.FrameOutOfRangeError, match=message) as caught:
        rows.limit(1).select(window(deltas_s=[-5.0, 0.1], tolerance_s=0.001)).collect()
    assert caught.value.time_s == pytest.approx(0.115)


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_windows_take_size_mode_and_rotation(clip: Clip, tmp_path: Path, mode: Any) -> None:
    path = rotate(clip, tmp_path / "turned.mp4", 90)
    rows = daft.from_pydict({"t": [0.2, 0.0]}).with_column("shard", lit(str(path)))
    options: dict[str, Any] = {"height": 96, "width": 64, "apply_rotation": True, "mode": mode}
    turned = decode_windows(col("shard"), 0.0, col("t"), end=None, deltas_s=[0.0, 0.1], **options)
    got = rows.select(turned).to_pydict()["window"]
    pictures = [
        rgb_of(frame) if mode == "RGB" else frame.to_ndarray(format="gray")[:, :, None]
        for frame in decode_sequentially(clip.path)
    ]
    for cell, numbers in zip(got, ([6, 9], [0, 3]), strict=True):
        np.testing.assert_array_equal(cell["frames"], np.stack([np.rot90(pictures[i], -1) for i in numbers]))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ValueError, "give deltas_s with one timestamp a row, or length"),
        ({"deltas_s": [0.0], "length": 1}, ValueError, "give deltas_s with one timestamp a row, or length"),
        ({"deltas_s": []}, TypeError, "deltas_s must be a list of numbers"),
        ({"deltas_s": ["now"]}, TypeError, "deltas_s must be a list of numbers"),
        ({"deltas_s": [math.nan]}, ValueError, "deltas_s must be finite"),
        ({"length": 0}, ValueError, "length is 0; it must be at least 1 frame"),
        ({"length": 2.0}, TypeError, "length must be a whole number of frames, not float"),
        ({"length": 4, "height": -1}, ValueError, "height is -1; it must be at least 1 pixel"),
        ({"length": 4, "height": 20_000, "width": 20_000}, ValueError, "a row of 4 x 20000 x 20000 x 3 bytes"),
        ({"length": 4, "mode": "BGR"}, ValueError, "mode is 'BGR'; choose one of 'RGB', 'L'"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        decode_windows("x.mp4", 0.0, 0.0, end=None, **(SIZE | options))


@pytest.mark.parametrize(
    ("column", "values", "options", "message"),
    [
        ("timestamp", ["a"], {"deltas_s": [0.0]}, "timestamps must be numeric seconds, but column 'timestamp' is"),
        ("end", ["x"], {"deltas_s": [0.0]}, "end must be numeric seconds, but column 'end' is #String"),
    ],
)
def test_columns_of_the_wrong_type_make_no_plan(
    clip: Clip, column: str, values: list[Any], options: dict[str, Any], message: str
) -> None:
    columns = {"shard": [clip.name], "offset": [0.0], "timestamp": [0.0], "end": [1.0]} | {column: values}
    with pytest.raises(ValueError, match=message):
        daft.from_pydict(columns).select(window(**options))


@pytest.mark.parametrize("values", [[1.0], [["a"]]])
def test_columns_that_are_no_lists_of_numbers_are_named(clip: Clip, values: list[Any]) -> None:
    columns = {"shard": [clip.name], "offset": [0.0], "end": [1.0], "timestamp": values}
    with pytest.raises(Exception, match="timestamps must be lists of numeric seconds, but column 'timestamp' is"):
        daft.from_pydict(columns).select(window(length=1)).collect()


@pytest.mark.parametrize("values", [[None, None], [[None], None], [[], []]])
def test_lists_that_are_all_null_or_empty_give_null(clip: Clip, values: list[Any]) -> None:
    columns = {"shard": [clip.name] * 2, "offset": [0.0] * 2, "end": [1.0] * 2, "timestamp": values}
    assert daft.from_pydict(columns).select(window(length=1, on_error="null")).to_pydict() == {"window": [None, None]}


def test_function_travels_to_other_processes(clip: Clip) -> None:
    rows = episode_rows(clip).limit(3)
    packed = daft.pickle.dumps(window(deltas_s=[0.0]))
    assert len(packed) < 20_000
    got: list[dict[str, npt.NDArray[np.uint8]]] = rows.select(daft.pickle.loads(packed)).to_pydict()["window"]
    np.testing.assert_array_equal(got[2]["frames"][0], clip.frames[2])
