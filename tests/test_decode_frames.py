# SPDX-License-Identifier: Apache-2.0
"""`decode_frames` in Daft queries, held against PyAV's sequential decode."""

from __future__ import annotations

import decimal
import math
import os
import shutil
from pathlib import Path
from typing import Any

import daft
import daft.pickle
import numpy as np
import numpy.typing as npt
import pytest
from daft import DataType, col, lit
from daft.functions import file, video_file

from daft_sparsevideo import VideoDecoder, _core, decode_frames, errors
from daft_sparsevideo.open_shards import open_shards
from oracle import decode_sequentially
from small_clip import Clip, make_clip, make_clip_of_two_sizes, rotate

Column = list[npt.NDArray[np.uint8] | None]


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> list[Clip]:
    """Three shards, of two sizes and two rates."""
    folder = tmp_path_factory.mktemp("decode")
    return [
        make_clip(folder / "top.mp4"),
        make_clip(folder / "wrist.mp4", frames=40, params="keyint=40:bframes=2:b-pyramid=none"),
        make_clip(folder / "small.mp4", frames=30, size=(50, 34), rate=10),
    ]


@pytest.fixture(autouse=True)
def fresh_process() -> None:
    open_shards.clear()


@pytest.fixture
def decode_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[int]]]:
    """Every call of the decoder, with its shard and frames."""
    calls: list[tuple[str, list[int]]] = []
    real = _core.Shard

    class Watched:
        def __init__(self, source: Any, *, name: str = "") -> None:
            self._name = name
            self._shard = real(source, name=name)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._shard, name)

        def decode(self, frames: npt.NDArray[np.int64], *args: Any, **options: Any) -> _core.DecodeResult:
            calls.append((self._name, frames.tolist()))
            return self._shard.decode(frames, *args, **options)

    monkeypatch.setattr(_core, "Shard", Watched)
    return calls


def shuffled_rows(clips: list[Clip], seed: int = 3, copies: int = 2) -> tuple[dict[str, list[Any]], list[Any]]:
    """Rows for every frame of every clip in random order, and the picture each must give."""
    rows = [(clip, i) for clip in clips for i in range(len(clip.frames))] * copies
    order = np.random.default_rng(seed).permutation(len(rows))
    chosen = [rows[k] for k in order]
    return {
        "shard": [clip.name for clip, _ in chosen],
        "offset": [i // 7 * 7 / clip.fps for clip, i in chosen],
        "timestamp": [i % 7 / clip.fps for clip, i in chosen],
    }, [clip.frames[i] for clip, i in chosen]


def assert_same(got: Column, wanted: list[Any]) -> None:
    assert len(got) == len(wanted)
    for picture, right in zip(got, wanted, strict=True):
        if right is None:
            assert picture is None
        else:
            assert picture is not None
            np.testing.assert_array_equal(picture, right)


def decoded(frame: daft.DataFrame, **options: Any) -> Column:
    rows = frame.select(decode_frames(col("shard"), col("offset"), col("timestamp"), **options))
    column: Column = rows.to_pydict()["frame"]
    return column


def test_frames_of_a_query_equal_a_full_decode(clips: list[Clip]) -> None:
    columns, wanted = shuffled_rows(clips)
    frame = daft.from_pydict(columns)
    assert_same(decoded(frame), wanted)
    assert_same(decoded(frame, batch_size=7), wanted)
    assert_same(decoded(frame.into_batches(5), batch_size=64, num_threads=1), wanted)


def test_column_has_the_fixed_shape_that_was_asked_for(clips: list[Clip]) -> None:
    columns, wanted = shuffled_rows(clips[:2], copies=1)
    frame = daft.from_pydict(columns)
    image = decode_frames(col("shard"), col("offset"), col("timestamp"), height=64, width=96)
    result = frame.with_column("top", image)
    assert result.schema()["top"].dtype == DataType.image("RGB", 64, 96)
    assert_same(result.to_pydict()["top"], wanted)
    assert frame.select(decode_frames("x", 0, 0)).schema()["frame"].dtype == DataType.image("RGB")


def test_resized_frames_equal_swscale_through_pyav(clips: list[Clip]) -> None:
    clip = clips[0]
    wanted = [
        frame.reformat(width=41, height=30, format="rgb24", interpolation="BILINEAR").to_ndarray()
        for frame in decode_sequentially(clip.path)
    ]
    columns, _ = shuffled_rows([clip], copies=1)
    order = [round((o + t) * clip.fps) for o, t in zip(columns["offset"], columns["timestamp"], strict=True)]
    assert_same(decoded(daft.from_pydict(columns), height=30, width=41), [wanted[i] for i in order])


@pytest.mark.parametrize("as_file", [file, video_file])
def test_file_columns_name_shards_as_well(clips: list[Clip], as_file: Any) -> None:
    columns, wanted = shuffled_rows(clips, copies=1)
    frame = daft.from_pydict(columns).with_column("shard", as_file(col("shard")))
    assert_same(decoded(frame), wanted)


def test_file_urls_byte_ranges_and_literals_name_shards_as_well(clips: list[Clip], tmp_path: Path) -> None:
    clip = clips[0]
    packed = tmp_path / "packed.bin"
    packed.write_bytes(b"\0" * 77 + clip.path.read_bytes())
    ranged = daft.File(str(packed), position=77, size=clip.path.stat().st_size)
    moments = daft.from_pydict({"t": [0.5, 0.1], "url": [f"file://{clip.path}"] * 2, "ranged": [ranged, None]})
    five, three = clip.frames[15], clip.frames[3]
    for shard, wanted in (
        (col("url"), [five, three]),
        (clip.name, [five, three]),
        (clip.path, [five, three]),
        (daft.File(clip.name), [five, three]),
        (lit(clip.name), [five, three]),
        (col("ranged"), [five, None]),
    ):
        assert_same(moments.select(decode_frames(shard, 0, col("t"))).to_pydict()["frame"], wanted)


def test_each_shard_of_a_batch_is_decoded_in_one_call(
    clips: list[Clip], decode_calls: list[tuple[str, list[int]]]
) -> None:
    columns, _ = shuffled_rows(clips, copies=1)
    columns = {name: values[:100] for name, values in columns.items()}
    decoded(daft.from_pydict(columns).into_batches(100))
    assert sorted(name for name, _ in decode_calls) == sorted({clip.name for clip in clips})
    asked = sum(len(frames) for _, frames in decode_calls)
    assert asked == 100


def test_each_shard_is_opened_once_for_a_whole_query(clips: list[Clip], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = _core.Shard

    def count(source: Any, *, name: str = "") -> _core.Shard:
        opened.append(name)
        return real(source, name=name)

    monkeypatch.setattr(_core, "Shard", count)
    columns, wanted = shuffled_rows(clips, copies=3)
    assert_same(decoded(daft.from_pydict(columns), batch_size=8), wanted)
    assert sorted(opened) == sorted(clip.name for clip in clips)


@pytest.mark.parametrize("size", [{}, {"height": 64, "width": 96}])
def test_null_in_any_column_gives_null(clips: list[Clip], size: dict[str, int]) -> None:
    top = clips[0].name
    frame = daft.from_pydict(
        {
            "shard": [top, None, top, top, top],
            "offset": [0.0, 0.0, None, 0.0, 1.0],
            "timestamp": [0.0, 0.0, 0.0, None, 0.5],
        }
    )
    assert_same(decoded(frame, **size), [clips[0].frames[0], None, None, None, clips[0].frames[45]])
    for column in ("shard", "offset", "timestamp"):
        nothing = frame.with_column(column, lit(None))
        assert decoded(nothing, **size) == [None] * 5


@pytest.mark.parametrize("size", [{}, {"height": 64, "width": 96}])
def test_rows_that_fail_are_null_and_spare_the_others(clips: list[Clip], tmp_path: Path, size: dict[str, int]) -> None:
    top, wrist = clips[0], clips[1]
    text = tmp_path / "text.mp4"
    text.write_text("not a video " * 50)
    frame = daft.from_pydict(
        {
            "shard": [top.name, str(tmp_path / "gone.mp4"), wrist.name, str(text), top.name, top.name, str(tmp_path)],
            "offset": [0.0, 0.0, 0.5, 0.0, 0.0, 1.0, 0.0],
            "timestamp": [99.0, 0.0, 0.1, 0.0, math.nan, 0.0, 0.0],
        }
    )
    wanted = [None, None, wrist.frames[18], None, None, top.frames[30], None]
    assert_same(decoded(frame, on_error="null", **size), wanted)


def test_damaged_rows_are_null(clips: list[Clip], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = _core.Shard

    class Result:
        def __init__(self, inner: _core.DecodeResult, damaged: list[int]) -> None:
            self.stats = inner.stats
            self.errors = [(position, errors.FrameDecodeError, "a reference is damaged") for position in damaged]

    class Damaged:
        """Reports frame 5 as damaged, and its bytes as whatever was there before."""

        def __init__(self, source: Any, *, name: str = "") -> None:
            self._shard = real(source, name=name)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._shard, name)

        def decode(self, frames: Any, out: Any, offsets: Any, **options: Any) -> Any:
            return Result(self._shard.decode(frames, out, offsets, **options), np.flatnonzero(frames == 5).tolist())

    monkeypatch.setattr(_core, "Shard", Damaged)
    path = shutil.copy(clips[0].path, tmp_path / "damaged.mp4")
    frame = daft.from_pydict(
        {"shard": [str(path)] * 4, "offset": [0.0] * 4, "timestamp": [4 / 30, 5 / 30, 6 / 30, 0.0]}
    )
    wanted = [clips[0].frames[4], None, clips[0].frames[6], clips[0].frames[0]]
    assert_same(decoded(frame, on_error="null"), wanted)
    fixed = decode_frames(col("shard"), col("offset"), col("timestamp"), height=64, width=96, on_error="null")
    assert_same(frame.select(fixed).to_pydict()["frame"], wanted)
    with pytest.raises(errors.FrameDecodeError, match=r"0\.166667 s .*damaged\.mp4: a reference is damaged") as caught:
        decoded(frame)
    assert caught.value.shard == str(path)
    assert caught.value.time_s == pytest.approx(5 / 30)


def test_error_names_shard_time_and_cause(clips: list[Clip], tmp_path: Path) -> None:
    top = clips[0].name
    frame = daft.from_pydict({"shard": [top, top], "offset": [1.0, 1.0], "timestamp": [0.5, 1.5]})
    with pytest.raises(errors.FrameOutOfRangeError) as caught:
        decoded(frame)
    assert (caught.value.shard, caught.value.time_s) == (top, 2.5)
    assert str(caught.value) == (
        f"no frame at 2.500000 s (offset 1.0 + timestamp 1.5) of {top}: "
        "2.500000 s is outside [0.000000, 2.000000) s by more than half a frame interval"
    )
    gone = tmp_path / "gone.mp4"
    with pytest.raises(FileNotFoundError, match=r"no frame at 1\.500000 s .*gone\.mp4: there is no file"):
        decoded(frame.with_column("shard", lit(str(gone))))
    with pytest.raises(errors.FrameOutOfRangeError, match=r"tolerance_s=0\.001"):
        decoded(frame.with_column("timestamp", lit(0.01)), tolerance_s=0.001)


def test_played_takes_the_frame_on_screen(clips: list[Clip]) -> None:
    top = clips[0]
    frame = daft.from_pydict({"shard": [top.name] * 3, "offset": [0.0] * 3, "timestamp": [0.03, 0.0334, 1.99]})
    assert_same(decoded(frame, match="played"), [top.frames[0], top.frames[1], top.frames[59]])
    assert_same(decoded(frame), [top.frames[1], top.frames[1], top.frames[59]])


@pytest.mark.parametrize(
    "dtype",
    [DataType.float32(), DataType.float64(), DataType.int8(), DataType.int64(), DataType.uint16()],
    ids=str,
)
def test_any_numeric_column_is_seconds(clips: list[Clip], dtype: DataType) -> None:
    frame = daft.from_pydict({"shard": [clips[2].name] * 3, "offset": [0, 1, 2], "timestamp": [0, 1, None]})
    frame = frame.with_columns({name: col(name).cast(dtype) for name in ("offset", "timestamp")})
    assert_same(decoded(frame), [clips[2].frames[0], clips[2].frames[20], None])


def test_decimals_and_numbers_are_seconds(clips: list[Clip]) -> None:
    frame = daft.from_pydict({"t": [decimal.Decimal("0.5"), None]})
    small = clips[2]
    for offset in (1, 1.0, np.float32(1), np.int64(1), lit(1)):
        got = frame.select(decode_frames(small.name, offset, col("t"))).to_pydict()["frame"]
        assert_same(got, [small.frames[15], None])
    constant = daft.from_pydict({"x": [1, 2]}).select(decode_frames(small.name, 0, 0.2))
    assert_same(constant.to_pydict()["frame"], [small.frames[2]] * 2)


def test_empty_batches_keep_the_type(clips: list[Clip]) -> None:
    frame = daft.from_pydict({"shard": [clips[0].name], "offset": [0.0], "timestamp": [0.0]}).where(col("offset") > 1)
    for size in ({}, {"height": 8, "width": 6}):
        rows = frame.select(decode_frames(col("shard"), col("offset"), col("timestamp"), **size))
        assert rows.to_pydict() == {"frame": []}
        assert rows.to_arrow().schema == rows.schema().to_pyarrow_schema()


def test_frames_of_different_sizes_share_a_column(clips: list[Clip], tmp_path: Path) -> None:
    path = tmp_path / "two.h264"
    frames = make_clip_of_two_sizes(path)
    times_s = (
        VideoDecoder(path).get_frames_at([9]).pts_s.tolist() + VideoDecoder(path).get_frames_at([2]).pts_s.tolist()
    )
    frame = daft.from_pydict(
        {"shard": [str(path), str(path), clips[2].name], "offset": [0.0] * 3, "timestamp": [*times_s, 0.0]}
    )
    assert_same(decoded(frame), [frames[9], frames[2], clips[2].frames[0]])
    shapes = [picture.shape for picture in decoded(frame, height=10, width=20) if picture is not None]
    assert shapes == [(10, 20, 3)] * 3


def test_rotated_and_upright_shards_share_a_batch(clips: list[Clip], tmp_path: Path) -> None:
    top = clips[0]
    paths = [str(rotate(top, tmp_path / f"{degrees}.mp4", degrees)) for degrees in (90, 180, 270)]
    frame = daft.from_pydict({"shard": [*paths, top.name], "offset": [0.0] * 4, "timestamp": [0.2] * 4})
    turned = [np.rot90(top.frames[6], -quarter) for quarter in (1, 2, 3, 0)]
    assert_same(decoded(frame, apply_rotation=True), turned)
    assert_same(decoded(frame), [top.frames[6]] * 4)
    upright = frame.where(col("shard") != paths[1]).where(col("shard") != top.name)
    image = decode_frames(col("shard"), col("offset"), col("timestamp"), height=96, width=64, apply_rotation=True)
    assert_same(upright.select(image).to_pydict()["frame"], [turned[0], turned[2]])


def test_pixels_are_decoded_into_the_column_itself(clips: list[Clip], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    real = _core.Shard

    class Watched:
        def __init__(self, source: Any, *, name: str = "") -> None:
            self._shard = real(source, name=name)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._shard, name)

        def decode(self, frames: Any, out: npt.NDArray[np.uint8], offsets: Any, **options: Any) -> Any:
            seen.append((out.ctypes.data, out.nbytes))
            return self._shard.decode(frames, out, offsets, **options)

    monkeypatch.setattr(_core, "Shard", Watched)
    rows = daft.from_pydict({"shard": [clips[0].name] * 4, "offset": [0.0] * 4, "timestamp": [0.0, 0.1, None, 0.3]})
    fixed = {"height": 64, "width": 96}
    for options in ({}, fixed, fixed | {"as_tensor": True}, fixed | {"as_tensor": True, "mode": "L"}):
        image = decode_frames(col("shard"), col("offset"), col("timestamp"), **options)
        column = rows.select(image).to_arrow()["frame"].chunk(0)
        pixels = column.storage.values if options else column.storage.field("data").values
        assert (pixels.buffers()[1].address, pixels.buffers()[1].size) == seen[-1]


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"height": 64}, ValueError, "give both"),
        ({"width": 64}, ValueError, "give both"),
        ({"height": -1, "width": 64}, ValueError, "height is -1"),
        ({"height": 64, "width": 0}, ValueError, "width is 0"),
        ({"height": 64.0, "width": 64}, TypeError, "height must be a whole number"),
        ({"match": "last"}, ValueError, "match is 'last'"),
        ({"on_error": "ignore"}, ValueError, "on_error is 'ignore'"),
        ({"tolerance_s": -1}, ValueError, "tolerance_s is -1"),
        ({"tolerance_s": "1"}, TypeError, "tolerance_s must be"),
        ({"batch_size": 0}, ValueError, "batch_size is 0"),
        ({"batch_size": 1.5}, TypeError, "batch_size must be"),
        ({"num_threads": 0}, ValueError, "num_threads is 0"),
        ({"shard": 5}, TypeError, "shard must be"),
        ({"offset": "from_timestamp"}, TypeError, r"write daft\.col\('from_timestamp'\)"),
        ({"timestamp": None}, TypeError, "timestamp must be a column or a number"),
        ({"offset": True}, TypeError, "offset must be a column or a number"),
    ],
)
def test_wrong_arguments_are_refused_when_the_query_is_written(
    options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    arguments = {"shard": "top.mp4", "offset": 0.0, "timestamp": 0.0} | options
    with pytest.raises(kind, match=message):
        decode_frames(**arguments)


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("timestamp", ["0.5"], "timestamp must be numeric seconds, but column 'timestamp' is #String"),
        ("offset", ["x"], "offset must be numeric seconds, but column 'offset' is #String"),
        ("end", ["x"], "end must be numeric seconds, but column 'end' is #String"),
        ("offset", [[0.5]], r"types: List\[Float64\], Float64"),
    ],
)
def test_columns_of_the_wrong_type_make_no_plan(
    clips: list[Clip], column: str, values: list[Any], message: str
) -> None:
    columns = {"shard": [clips[0].name], "offset": [0.0], "timestamp": [0.0], "end": [1.0]} | {column: values}
    rows = daft.from_pydict(columns)
    image = decode_frames(col("shard"), col("offset"), col("timestamp"), end=col("end"))
    for make_plan in (rows.select, lambda expression: rows.with_column("top", expression)):
        with pytest.raises(ValueError, match=message):
            make_plan(image)


@pytest.mark.parametrize("column", ["shard", "offset", "timestamp", "end"])
def test_missing_columns_make_no_plan(clips: list[Clip], column: str) -> None:
    columns = {"shard": [clips[0].name], "offset": [0.0], "timestamp": [0.0], "end": [1.0]}
    del columns[column]
    with pytest.raises(ValueError, match=rf"Column col\({column}\) not found"):
        daft.from_pydict(columns).select(decode_frames(col("shard"), col("offset"), col("timestamp"), end=col("end")))


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("timestamp", [True], "timestamp must be numeric seconds, but column 'timestamp' is Bool"),
        ("shard", [1.0], "shard must be paths or files, but column 'shard' is Float64"),
        ("shard", [b"top.mp4"], "shard must be paths or files, but column 'shard' is Binary"),
    ],
)
def test_columns_that_cannot_be_told_from_the_plan_are_named(
    clips: list[Clip], column: str, values: list[Any], message: str
) -> None:
    columns = {"shard": [clips[0].name], "offset": [0.0], "timestamp": [0.0]} | {column: values}
    with pytest.raises(TypeError, match=message):
        decoded(daft.from_pydict(columns))


def test_function_travels_to_other_processes(clips: list[Clip]) -> None:
    """What a remote worker gets holds no shard, lock or decoder of this process."""
    frame = daft.from_pydict({"shard": [clips[0].name], "offset": [0.0], "timestamp": [0.1]})
    image = decode_frames(col("shard"), col("offset"), col("timestamp"))
    packed = daft.pickle.dumps(image)
    assert len(packed) < 20_000
    assert_same(frame.select(daft.pickle.loads(packed)).to_pydict()["frame"], [clips[0].frames[3]])


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12 on fork beside threads
def test_shards_opened_by_a_query_serve_forked_processes(clips: list[Clip]) -> None:
    columns, _ = shuffled_rows(clips, copies=1)
    decoded(daft.from_pydict(columns))
    child = os.fork()
    if child == 0:
        pictures = [VideoDecoder(clip.path).get_frames_at([8]).data[0] for clip in clips]
        right = all(np.array_equal(picture, clip.frames[8]) for picture, clip in zip(pictures, clips, strict=True))
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_two_cameras_decode_in_one_query(clips: list[Clip]) -> None:
    top, wrist = clips[:2]
    frame = daft.from_pydict({"t": [0.5, 0.0], "top": [top.name] * 2, "wrist": [wrist.name] * 2})
    images = {name: decode_frames(col(name), 0.0, col("t")) for name in ("top", "wrist")}
    both = frame.with_columns(images).to_pydict()
    assert_same(both["top"], [top.frames[15], top.frames[0]])
    assert_same(both["wrist"], [wrist.frames[15], wrist.frames[0]])


def test_episodes_of_accumulated_offsets_give_their_own_frames(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "episodes.mp4", frames=120)
    lengths = np.random.default_rng(2).integers(7, 18, 9)
    lengths = np.append(lengths, 120 - lengths.sum()) if lengths.sum() < 120 else lengths
    for dtype in (np.float32, np.float64):
        offset, first = dtype(0), 0
        rows: dict[str, list[Any]] = {"offset": [], "timestamp": []}
        wanted = []
        for length in lengths.tolist():
            rows["offset"] += [offset] * length
            rows["timestamp"] += [dtype(i / 30) for i in range(length)]
            wanted += clip.frames[first : first + length]
            offset, first = dtype(offset + dtype(length / 30)), first + length
        arrays = {name: np.array(values, dtype) for name, values in rows.items()}
        frame = daft.from_pydict(arrays).limit(len(wanted)).with_column("shard", lit(clip.name))
        assert_same(decoded(frame), wanted)
        assert_same(decoded(frame, match="played"), wanted)
