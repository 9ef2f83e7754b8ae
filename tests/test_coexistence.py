# SPDX-License-Identifier: Apache-2.0
"""Three FFmpegs in one process: PyAV's, TorchCodec's and the one linked into this module, which nobody else sees."""

from __future__ import annotations

import ctypes
import importlib
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daft_sparsevideo import VideoDecoder
from encoding import encode
from oracle import assert_same_picture, decode_all
from own_process import run_alone
from scenes import draw_scene

FFMPEG_PREFIXES = (
    "av_",
    "avcodec_",
    "avformat_",
    "avio_",
    "avutil_",
    "avpriv_",
    "swscale_",
    "sws_",
    "ff_",
    "postproc_",
    "x264_",
    "x265_",
    "_ZN4x265",
    "_ZN10x265_10bit",
)
MODULES = ["_core", "_encoder"]


def defined_symbols(library: Path) -> set[str]:
    """Names that a 64-bit little-endian ELF library offers to others (its .dynsym, defined entries)."""
    data = library.read_bytes()
    assert data[:6] == b"\x7fELF\x02\x01", "an ELF file of the platforms that are supported"
    sections_at = struct.unpack_from("<Q", data, 40)[0]
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, sections_at + size * k) for k in range(count)]
    names = set()
    for kind, offset, length, link in ((s[1], s[4], s[5], s[6]) for s in sections):
        if kind != 11:  # SHT_DYNSYM
            continue
        strings = sections[link][4]
        for at in range(offset, offset + length, 24):
            name, section = struct.unpack_from("<I2xH", data, at)
            if section:  # SHN_UNDEF is 0: wanted, not offered
                start = strings + name
                names.add(data[start : data.index(b"\x00", start)].decode())
    return names


def module_path(name: str) -> Path:
    """The file of a compiled module; a test is skipped where the encoder was left out."""
    return Path(str(pytest.importorskip(f"daft_sparsevideo.{name}").__file__))


@pytest.mark.parametrize("module", MODULES)
def test_no_symbol_of_ffmpeg_and_the_encoders_is_offered_to_others(module: str) -> None:
    names = defined_symbols(module_path(module))
    assert any(name.startswith("PyInit_") for name in names), "the reader reads"
    assert not sorted(name for name in names if name.startswith(FFMPEG_PREFIXES))


@pytest.mark.parametrize("module", MODULES)
def test_no_such_library_of_the_system_is_needed(module: str) -> None:
    library = ctypes.CDLL(str(module_path(module)))
    for name in (
        "avcodec_open2",
        "avformat_open_input",
        "sws_scale",
        "av_malloc",
        "x264_encoder_close",
        "x265_api_get",
    ):
        assert not hasattr(library, name), f"{name} comes from a library that the module links"


def test_the_decoder_holds_nothing_of_the_gpl_encoders() -> None:
    def has_x264_settings(module: str) -> bool:
        return b"b-pyramid" in module_path(module).read_bytes()

    assert has_x264_settings("_encoder")
    assert not has_x264_settings("_core")


def decode_with_all(path: str, first: str, names: list[str]) -> dict[str, list[int]]:
    """In one process, with `first` loaded first, decode the same frames with each; sums of the pixels by name."""
    wanted = [50, 3, 27, 4]

    def sparse() -> Any:
        return importlib.import_module("daft_sparsevideo").VideoDecoder(path).get_frames_at(wanted).data

    def pyav() -> Any:
        oracle = importlib.import_module("oracle")
        frames = [oracle.rgb_of(frame) for frame in oracle.decode_sequentially(Path(path))]
        return np.stack([frames[i] for i in wanted])

    def torchcodec() -> Any:
        decoders = importlib.import_module("torchcodec.decoders")
        decoder = decoders.VideoDecoder(path, dimension_order="NHWC", num_ffmpeg_threads=1)
        return decoder.get_frames_at(wanted).data.numpy()

    decode = {"daft_sparsevideo": sparse, "av": pyav, "torchcodec": torchcodec}
    order = [first, *(name for name in names if name != first)]
    pixels = {name: decode[name]() for name in order + order}
    return {name: [int(picture.astype(np.int64).sum()) for picture in data] for name, data in pixels.items()}


def available() -> list[str]:
    names = ["daft_sparsevideo", "av"]
    try:  # it needs torch, and shared libraries of FFmpeg that it finds by itself
        importlib.import_module("torchcodec.decoders")
    except (ImportError, OSError, RuntimeError):
        return names
    return [*names, "torchcodec"]


@pytest.mark.parametrize("first", ["daft_sparsevideo", "av"])
def test_pyav_and_this_module_work_in_one_process_whichever_comes_first(tmp_path: Path, first: str) -> None:
    path = encode(tmp_path / "clip.mp4", draw_scene("mixed", 60, 96, 64), params="keyint=20:bframes=3")
    sums = run_alone(decode_with_all, str(path), first, ["daft_sparsevideo", "av"])
    assert sums["daft_sparsevideo"] == sums["av"]


@pytest.mark.parametrize("first", ["daft_sparsevideo", "torchcodec"])
def test_torchcodec_pyav_and_this_module_work_in_one_process(tmp_path: Path, first: str) -> None:
    if "torchcodec" not in available():
        pytest.skip("torchcodec is not installed, or finds no FFmpeg")
    path = encode(tmp_path / "clip.mp4", draw_scene("mixed", 60, 96, 64), params="keyint=20:bframes=3")
    sums = run_alone(decode_with_all, str(path), first, available())
    assert sums["daft_sparsevideo"] == sums["av"] == sums["torchcodec"]


def test_pyav_decodes_in_the_middle_of_sparse_work(tmp_path: Path) -> None:
    path = encode(tmp_path / "clip.mp4", draw_scene("mixed", 60, 96, 64), params="keyint=20:bframes=3")
    decoder = VideoDecoder(path)
    for index in (44, 2, 59):
        decode_all.cache_clear()
        assert_same_picture(decoder.get_frames_at([index]).data[0], decode_all(path), index)
