# SPDX-License-Identifier: Apache-2.0
"""Grey, tensors and sizes of `decode_frames`, held against PyAV's reformat()."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import daft
import numpy as np
import numpy.typing as npt
import pytest
from daft import DataType, col, lit

from daft_sparsevideo import _core, decode_frames
from encoding import encode
from oracle import decode_sequentially
from scenes import draw_scene
from small_clip import Clip, make_clip, rotate
from streams import STREAMS, stream_path

# 8 and 10 bits, 4:2:0, 4:2:2, 4:4:4, monochrome, odd sizes, both ranges, three matrices, both scans, both codecs.
KINDS = (
    "h264_ultrafast",
    "h264_10bit",
    "h264_422",
    "h264_444",
    "h264_444_lossless",
    "h264_monochrome",
    "h264_98x58",
    "h264_853x479_444",
    "h264_650x650",
    "h264_full_range_709",
    "h264_tff",
    "h264_mbaff_temporal",
    "h264_422_10bit_mbaff",
    "h264_fake_interlaced",
    "hevc_main10",
    "hevc_422_10bit",
    "hevc_98x58_ts",
    "hevc_lossless_444",
    "hevc_vfr_2020",
)
BY_NAME = {stream.name: stream for stream in STREAMS}
FRAMES = 8


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Clip:
    return make_clip(tmp_path_factory.mktemp("forms") / "top.mp4")


def converted(frame: Any, size: tuple[int, int], mode: str) -> npt.NDArray[np.uint8]:
    """PyAV's own conversion."""
    kind = {"RGB": "rgb24", "L": "gray"}[mode]
    made = frame.reformat(width=size[1], height=size[0], format=kind, interpolation="BILINEAR").to_ndarray()
    picture: npt.NDArray[np.uint8] = made.astype(np.uint8, copy=False)
    return picture


def assert_conversions_equal_pyavs(path: Path, mode: str) -> None:
    frames = list(decode_sequentially(path))[:FRAMES]
    shard = _core.Shard(str(path))
    own = frames[0].height, frames[0].width
    sizes = [(own[0] // 2, own[1] // 2), (own[0] * 2, own[1] * 2), (31, 50), (48, 80), (71, 33)]
    sizes += [(own[0], width) for width in (33, own[1] // 2 * 2 + 1)]  # odd widths, nothing scaled vertically
    for asked in (None, *sizes):
        size = asked or own
        wanted = np.stack([converted(frame, size, mode) for frame in frames])
        data = np.full(wanted.size, 0xA5, np.uint8)
        places = np.arange(FRAMES, dtype=np.int64) * (wanted.size // FRAMES)
        options = {"height": size[0], "width": size[1]} if asked else {}
        result = shard.decode(np.arange(FRAMES), data, places, mode=_core.PixelMode[mode], **options)
        assert not result.errors
        np.testing.assert_array_equal(data.reshape(wanted.shape), wanted, f"size {asked}")


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("name", KINDS)
def test_pictures_equal_pyavs_of_every_kind_of_stream_in_every_size(name: str, mode: str) -> None:
    assert_conversions_equal_pyavs(stream_path(BY_NAME[name]), mode)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize(
    ("codec", "name"),
    [("libvpx-vp9", "odd.mkv"), ("mpeg4", "odd.mp4"), ("mjpeg", "odd.avi"), ("mpeg2video", "odd.ts")],
)
def test_frames_of_odd_width_and_height_equal_pyavs(tmp_path: Path, codec: str, name: str, mode: str) -> None:
    pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
    path = encode(tmp_path / name, draw_scene("mixed", FRAMES, 97, 65), codec=codec, pix_fmt=pix_fmt)
    assert_conversions_equal_pyavs(path, mode)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize(
    ("codec", "pix_fmt"),
    [
        ("libx265", "gray"),
        ("libx265", "gray10le"),
        ("libx265", "yuv422p12le"),
        ("libx265", "gbrp10le"),
        ("libx264rgb", "rgb24"),
        ("mjpeg", "yuvj420p"),
        ("libvpx-vp9", "yuv420p"),
    ],
)
def test_rarer_samples_equal_pyavs_in_colour_and_in_grey(tmp_path: Path, codec: str, pix_fmt: str, mode: str) -> None:
    params = "pools=none:frame-threads=1:log-level=error" if codec == "libx265" else ""
    path = encode(
        tmp_path / "film.mkv", draw_scene("mixed", FRAMES, 98, 58), codec=codec, pix_fmt=pix_fmt, params=params
    )
    assert_conversions_equal_pyavs(path, mode)


def test_grey_of_a_frame_is_that_of_pyavs_array(clip: Clip) -> None:
    frame = next(decode_sequentially(clip.path))
    np.testing.assert_array_equal(converted(frame, (64, 96), "L"), frame.to_ndarray(format="gray"))


def column_of(clip: Clip, numbers: list[int | None], **options: Any) -> tuple[DataType, list[Any]]:
    times = [None if number is None else number / clip.fps for number in numbers]
    rows = daft.from_pydict({"t": times}).with_column("t", col("t").cast(DataType.float64()))
    frame = rows.select(decode_frames(clip.name, 0.0, col("t"), **options))
    return frame.schema()["frame"].dtype, frame.to_pydict()["frame"]


def assert_pictures(got: list[Any], wanted: list[Any]) -> None:
    for picture, right in zip(got, wanted, strict=True):
        if right is None:
            assert picture is None
        else:
            np.testing.assert_array_equal(picture, right)


def test_columns_have_the_type_and_the_pictures_of_their_form(clip: Clip) -> None:
    numbers = [7, None, 30, 7]
    frames = list(decode_sequentially(clip.path))
    size = (40, 56)
    colour = {i: converted(frames[i], size, "RGB") for i in (7, 30)}
    grey = {i: converted(frames[i], size, "L")[:, :, None] for i in (7, 30)}
    whole = {i: converted(frames[i], (64, 96), "L")[:, :, None] for i in (7, 30)}
    fixed: dict[str, Any] = {"height": size[0], "width": size[1]}
    uint8 = DataType.uint8()
    forms: list[tuple[dict[str, Any], DataType, dict[int, Any]]] = [
        ({"mode": "L"}, DataType.image("L"), whole),
        (fixed | {"mode": "L"}, DataType.image("L", *size), grey),
        (fixed, DataType.image("RGB", *size), colour),
        (fixed | {"as_tensor": True}, DataType.tensor(uint8, (*size, 3)), colour),
        (fixed | {"as_tensor": True, "mode": "L"}, DataType.tensor(uint8, (*size, 1)), grey),
    ]
    for options, kind, pictures in forms:
        data_type, got = column_of(clip, list(numbers), **options)
        assert data_type == kind
        assert_pictures(got, [None if i is None else pictures[i] for i in numbers])


def test_tensor_of_grey_has_the_shape_that_daft_gives_its_own_grey_images(clip: Clip) -> None:
    image = decode_frames(clip.name, 0.0, 0.5, height=64, width=96, mode="L")
    tensor = decode_frames(clip.name, 0.0, 0.5, height=64, width=96, mode="L", as_tensor=True)
    rows = daft.from_pydict({"x": [1]}).select(image.alias("image"), tensor.alias("tensor")).to_pydict()
    assert rows["image"][0].shape == rows["tensor"][0].shape == (64, 96, 1)
    np.testing.assert_array_equal(rows["image"][0], rows["tensor"][0])


@pytest.mark.parametrize("as_tensor", [False, True], ids=["image", "tensor"])
def test_rotation_turns_grey_too(clip: Clip, tmp_path: Path, as_tensor: bool) -> None:  # noqa: FBT001
    upright = converted(list(decode_sequentially(clip.path))[6], (64, 96), "L")
    for degrees in (90, 180, 270):
        turned = Clip(rotate(clip, tmp_path / f"{degrees}.mp4", degrees), [], clip.fps)
        height, width = (96, 64) if degrees != 180 else (64, 96)
        options: dict[str, Any] = {"height": height, "width": width, "as_tensor": as_tensor, "mode": "L"}
        _, got = column_of(turned, [6], apply_rotation=True, **options)
        assert_pictures(got, [np.rot90(upright, -degrees // 90)[:, :, None]])


def test_empty_batches_keep_the_type(clip: Clip) -> None:
    rows = daft.from_pydict({"t": [0.0]}).where(col("t") > 1)
    fixed: dict[str, Any] = {"height": 8, "width": 6}
    forms: list[dict[str, Any]] = [{"mode": "L"}, fixed | {"mode": "L"}, fixed | {"as_tensor": True}]
    for options in forms:
        frame = rows.select(decode_frames(clip.name, 0.0, col("t"), **options))
        assert frame.to_pydict() == {"frame": []}
        assert frame.to_arrow().schema == frame.schema().to_pyarrow_schema()


def test_failing_rows_of_a_tensor_are_null(clip: Clip) -> None:
    rows = daft.from_pydict({"t": [99.0, 0.5]}).with_column("shard", lit(clip.name))
    tensor = decode_frames(col("shard"), 0.0, col("t"), height=64, width=96, as_tensor=True, on_error="null")
    assert_pictures(rows.select(tensor).to_pydict()["frame"], [None, clip.frames[15]])


def test_batch_too_large_for_memory_says_so(clip: Clip, monkeypatch: pytest.MonkeyPatch) -> None:
    real = np.empty

    def small_only(shape: Any, *args: Any, **options: Any) -> Any:
        if np.prod(shape) > 1 << 30:
            raise MemoryError
        return real(shape, *args, **options)

    monkeypatch.setattr("daft_sparsevideo.batch.np.empty", small_only)
    query = daft.from_pydict({"t": [0.0] * 64}).into_batches(64)
    message = "64 rows of 1 frame of size 4000x4000, 3 bytes a pixel, do not fit into memory: lower batch_size"
    with pytest.raises(MemoryError, match=message):
        query.select(decode_frames(clip.name, 0.0, col("t"), height=4000, width=4000)).collect()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"as_tensor": True}, "as_tensor=True needs height and width"),
        ({"mode": "gray"}, "mode is 'gray'; choose one of 'RGB', 'L'"),
        (
            {"height": 30_000, "width": 30_000},
            "a row of 30000 x 30000 x 3 bytes: a row of a column holds at most 2 GiB",
        ),
        ({"height": -8, "width": 6}, "height is -8; it must be at least 1 pixel"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    make = functools.partial(decode_frames, "x.mp4", 0.0, 0.0)
    with pytest.raises(ValueError, match=message):
        make(**options)
