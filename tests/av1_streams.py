# SPDX-License-Identifier: Apache-2.0
"""The made AV1 streams of the exactness protocol: a table as in `streams.py`, for SVT-AV1 (PyAV's) and libaom (aomenc).

Streams of libaom are skipped where the program `aomenc` is not installed.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import av
import numpy as np
import pytest

from encoding import encode
from oracle import visible_planes
from scenes import Scene, draw_scene
from streams import cache_folder, cached


@dataclass(frozen=True)
class Av1Stream:
    """One row of the table: a small clip and what it must show."""

    name: str
    encoder: Literal["svt", "aom"]
    params: str = ""  # "key=value:key=value" of either encoder
    shows: Mapping[str, int] = field(default_factory=dict)  # Av1Facts; "min_" before a name: at least
    size: tuple[int, int] = (96, 64)
    frames: int = 60
    scene: Scene = "mixed"
    pix_fmt: str = "yuv420p"
    container: str = "mp4"
    uneven: bool = False  # variable frame rate
    start_ticks: int = 0
    graph: bool = True  # whether every frame's references can be proven


def _svt(name: str, params: str = "", **rest: Any) -> Av1Stream:
    return Av1Stream(f"svt_{name}", "svt", params, **rest)


def _aom(name: str, params: str = "", **rest: Any) -> Av1Stream:
    return Av1Stream(f"aom_{name}", "aom", params, **rest)


# One row, one line.
# fmt: off
AV1_STREAMS: tuple[Av1Stream, ...] = (
    # SVT-AV1: presets and groups of pictures; g=2 at preset 12 is what LeRobot writes
    _svt("lerobot", "preset=12:keyint=2", shows={"longest_gop": 2, "key": 30}),
    _svt("preset4", "preset=4:keyint=30", frames=40, size=(128, 96)),
    _svt("preset6", "preset=6", frames=40),
    _svt("preset8", "preset=8", size=(144, 96)),
    _svt("preset10", "preset=10:keyint=20", scene="cuts"),
    _svt("preset13", "preset=13", shows={"key": 1}),
    _svt("g4", "preset=8:keyint=4", shows={"longest_gop": 4}),
    _svt("g8", "preset=8:keyint=8:hierarchical-levels=3", shows={"longest_gop": 8}),
    _svt("g16", "preset=8:keyint=16", shows={"longest_gop": 16}),
    _svt("g32", "preset=8:keyint=32:hierarchical-levels=5", frames=100, shows={"longest_gop": 32}),
    _svt("g161", "preset=10:keyint=161", frames=200, scene="steady", shows={"longest_gop": 161, "min_show_existing": 20}),
    _svt("g250", "preset=11:keyint=250", frames=250, scene="still", shows={"key": 1}),
    # hierarchies and low delay
    _svt("levels2", "preset=8:hierarchical-levels=2", shows={"largest_unit": 3, "min_show_existing": 10}),
    _svt("levels3", "preset=8:hierarchical-levels=3", shows={"largest_unit": 4}),
    _svt("levels4", "preset=8:hierarchical-levels=4", shows={"largest_unit": 5}),
    _svt("levels5", "preset=8:hierarchical-levels=5", frames=100, shows={"largest_unit": 6}),
    _svt("low_delay", "preset=8:pred-struct=1", shows={"hidden": 0}),
    _svt("low_delay_levels3", "preset=9:pred-struct=1:hierarchical-levels=3", shows={"hidden": 0}),
    _svt("rtc", "preset=11:pred-struct=1:rtc=1", shows={"hidden": 0}),
    _svt("open_gop", "preset=8:keyint=16:irefresh-type=1:hierarchical-levels=3", frames=80, shows={"min_intra_only": 3}),
    _svt("open_gop_levels5", "preset=8:keyint=32:irefresh-type=1:hierarchical-levels=5", frames=140, shows={"min_intra_only": 3}),
    _svt("s_frames", "preset=8:pred-struct=1:sframe-dist=12:sframe-mode=1:keyint=120", shows={"min_switch": 2}, graph=False),
    # tools and sample formats
    _svt("10bit", "preset=8:keyint=40", pix_fmt="yuv420p10le"),
    _svt("grain", "preset=8:film-grain=30:film-grain-denoise=1:keyint=30", shows={"min_grain": 20}),
    _svt("grain_10bit", "preset=9:film-grain=50:keyint=40", pix_fmt="yuv420p10le", shows={"min_grain": 20}),
    _svt("tiles", "preset=9:tile-columns=1:tile-rows=1:keyint=30", size=(256, 192), frames=40, shows={"min_tiles": 1}),
    _svt("screen", "preset=6:scm=1:keyint=30", scene="still", frames=40, shows={"min_screen_content": 1, "min_intrabc": 1}),
    _svt("superres", "preset=8:superres-mode=1:superres-denom=13:superres-kf-denom=11", size=(160, 96), frames=40, shows={"min_superres": 20}),
    _svt("superres_random", "preset=8:superres-mode=2", size=(160, 96), frames=40, shows={"min_superres": 10, "min_sizes": 3}),
    _svt("resized", "preset=8:resize-mode=2:pred-struct=1:rc=0", size=(160, 96), frames=40, shows={"min_sizes": 3}),
    _svt("segments", "preset=8:aq-mode=1:keyint=30", shows={"min_segmentation": 5}),
    _svt("lossless", "preset=8:lossless=1", frames=20),
    _svt("no_filters", "preset=8:enable-dlf=0:enable-cdef=0:enable-restoration=0"),
    _svt("cuts", "preset=8:scd=1:keyint=60", scene="cuts"),
    _svt("fades", "preset=8:enable-tf=0", scene="fades"),
    # sizes, containers, clocks
    _svt("98x66", "preset=8", size=(98, 66)),
    _svt("853x479", "preset=12:keyint=12", size=(853, 479), frames=20),
    _svt("650x650", "preset=12:keyint=16", size=(650, 650), frames=20),
    _svt("mkv_late_start", "preset=8:keyint=20", container="mkv", start_ticks=3000),
    _svt("vfr", "preset=8", uneven=True),
    _svt("ivf", "preset=8:keyint=24", container="ivf"),
    _svt("obu", "preset=8:keyint=24", container="obu"),
    # libaom
    _aom("good", "cpu-used=6", shows={"min_hidden": 5}),
    _aom("two_passes", "cpu-used=6:kf-max-dist=40:passes=2", frames=80),
    _aom("realtime", "rt=:cpu-used=8:lag-in-frames=0:passes=1", shows={"hidden": 0}),
    _aom("error_resilient", "cpu-used=6:error-resilient=1", shows={"min_error_resilient": 55}),
    _aom("global_error_resilient", "cpu-used=6:global-error-resilient=1"),
    _aom("forward_key", "cpu-used=6:fwd-kf-dist=16:passes=2:lag-in-frames=19", frames=90, scene="steady", shows={"min_hidden_key": 1, "min_shown_existing_key": 1}),
    _aom("superres", "cpu-used=6:superres-mode=2", size=(160, 96), frames=40, shows={"min_superres": 10}),
    _aom("resized", "cpu-used=6:resize-mode=2", size=(160, 96), frames=40, shows={"min_sizes": 2}),
    _aom("resized_half", "cpu-used=6:resize-mode=1:resize-denominator=14:resize-kf-denominator=11", size=(160, 96), frames=40, shows={"min_sizes": 2}),
    _aom("grain", "cpu-used=6:film-grain-test=7", frames=40, shows={"min_grain": 20}),
    _aom("grain_update", "cpu-used=6:film-grain-test=2:kf-max-dist=20", frames=40, shows={"min_grain": 20}),
    _aom("tiles", "cpu-used=6:tile-columns=1:tile-rows=1:num-tile-groups=4", size=(256, 192), frames=30, shows={"min_tiles": 2, "min_tile_groups": 2}),
    _aom("screen", "cpu-used=6:tune-content=screen", scene="still", frames=30, shows={"min_screen_content": 1}),
    _aom("no_order_hint", "cpu-used=6:enable-order-hint=0", shows={"ref_mvs": 0}),
    _aom("aq", "cpu-used=6:aq-mode=2:kf-max-dist=30", shows={"min_segmentation": 5}),
    _aom("cyclic_aq", "rt=:cpu-used=8:aq-mode=3:lag-in-frames=0:passes=1:end-usage=cbr:target-bitrate=60", size=(192, 128), shows={"min_segmentation": 5}),
    _aom("frame_parallel", "cpu-used=6:frame-parallel=1"),
    _aom("pyramid5", "cpu-used=6:gf-max-pyr-height=5:lag-in-frames=35:kf-max-dist=120", frames=120),
    _aom("reduced_references", "cpu-used=6:reduced-reference-set=1"),
    _aom("monochrome", "cpu-used=6:monochrome=", frames=30),
    _aom("gbr", "cpu-used=6:i444=:profile=1:matrix-coefficients=identity:color-primaries=bt709:transfer-characteristics=srgb", pix_fmt="yuv444p", frames=20),
    _aom("444", "cpu-used=6:i444=:profile=1", pix_fmt="yuv444p", frames=30),
    _aom("422_10bit", "cpu-used=6:i422=:profile=2:bit-depth=10:input-bit-depth=10", pix_fmt="yuv422p10le", frames=30),
    _aom("12bit", "cpu-used=6:profile=2:bit-depth=12:input-bit-depth=12", pix_fmt="yuv420p12le", frames=30),
    _aom("179x121", "cpu-used=6:kf-max-dist=20", size=(179, 121), frames=40),
    _aom("ivf", "cpu-used=6:kf-max-dist=30", container="ivf"),
    _aom("annexb", "cpu-used=6:annexb=1", container="obu"),
    _aom("mkv", "cpu-used=6:kf-max-dist=30", container="mkv"),
)
# fmt: on


def make(stream: Av1Stream, path: Path) -> None:
    """Encode one row of the table into `path`."""
    {"svt": _make_with_svt, "aom": _make_with_aom}[stream.encoder](stream, path)


def _make_with_svt(stream: Av1Stream, path: Path) -> None:
    ticks_per_frame = 100
    steps = np.full(stream.frames, ticks_per_frame)
    if stream.uneven:
        steps += np.random.default_rng(7).integers(-ticks_per_frame // 3, ticks_per_frame, stream.frames)
    pts = (np.cumsum(steps) - steps[0] + stream.start_ticks).tolist()
    params = dict(setting.split("=") for setting in stream.params.split(":"))
    options = {"preset": params.pop("preset")}
    if "keyint" in params:
        options["g"] = params.pop("keyint")
    width, height = stream.size
    with av.logging.Capture(local=False) as lines:
        encode(
            path,
            draw_scene(stream.scene, stream.frames, width, height),
            codec="libsvtav1",
            params=":".join(f"{key}={value}" for key, value in (params | {"lp": "1"}).items()),
            options=options,
            pix_fmt=stream.pix_fmt,
            pts=pts,
            time_base=Fraction(1, 30 * ticks_per_frame),
            container=stream.container,
        )
    refused = [text for _, _, text in lines if "Error parsing option" in text]
    assert not refused, refused


def _make_with_aom(stream: Av1Stream, path: Path) -> None:
    aomenc = shutil.which("aomenc")
    if aomenc is None:
        pytest.skip("aomenc is not installed (Debian: aom-tools)")
    width, height = stream.size
    switches = [f"--{setting.removesuffix('=')}" for setting in stream.params.split(":")]
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        raw, coded = Path(scratch) / "raw.yuv", Path(scratch) / "coded"
        with raw.open("wb") as file:
            for picture in draw_scene(stream.scene, stream.frames, width, height):
                frame = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format=stream.pix_fmt)
                file.write(visible_planes(frame))
        command = [aomenc, "--threads=1", f"--width={width}", f"--height={height}", "--fps=30/1", *switches]
        command += ["--obu" if stream.container == "obu" else "--ivf", "-o", str(coded), str(raw)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - its own path
        assert done.returncode == 0, done.stderr
        if stream.container in {"ivf", "obu"}:
            coded.replace(path)
            return
        with av.open(str(coded), format="ivf") as source, av.open(str(path), "w") as file:
            of_source = source.streams.video[0]
            of_file = file.add_stream_from_template(of_source, opaque=True)
            for packet in source.demux(of_source):
                if packet.size:
                    packet.stream = of_file
                    file.mux(packet)


def av1_path(stream: Av1Stream) -> Path:
    """The file of one row, made now if it is not there."""
    path = cache_folder("av1_streams.py", "oracle.py") / f"{stream.name}.{stream.container}"
    return cached(path, lambda made: make(stream, made))
