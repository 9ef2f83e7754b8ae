# SPDX-License-Identifier: Apache-2.0
"""The hundred made streams of the exactness protocol: one table, and the cache that keeps what it makes.

A row says which encoder settings it wants and, in `shows`, what must be seen in the finished file; `test_streams.py`
holds the files against both.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import av
import numpy as np

from coded_facts import without_bitstream_restriction
from encoding import encode
from scenes import Fields, Scene, draw_scene


@dataclass(frozen=True)
class Stream:
    """One row of the table: a small clip and what it must show."""

    name: str
    codec: Literal["libx264", "libx265"]
    params: str = ""
    shows: Mapping[str, int | str] = field(default_factory=dict)  # Facts; "min_" before a name: at least
    wrote: str = ""  # tokens of the encoder's own options line, beyond those that follow from `params`
    preset: str = "veryfast"
    tune: str = ""
    size: tuple[int, int] = (96, 64)
    frames: int = 60
    pix_fmt: str = "yuv420p"
    container: str = "mp4"
    scene: Scene = "mixed"
    fields: Fields = ""
    uneven: bool = False  # variable frame rate
    start_ticks: int = 0
    ticks_per_frame: int = 1
    dts_shift: int = 0
    picture_types: str = ""
    container_options: Mapping[str, str] = field(default_factory=dict)
    vui: bool = True

    def pts(self) -> list[int]:
        """Presentation times in ticks of 1 / (30 * ticks_per_frame) s."""
        jitter = np.random.default_rng(7).integers(-self.ticks_per_frame // 3, self.ticks_per_frame, self.frames)
        steps = np.arange(self.frames) * self.ticks_per_frame
        if self.uneven:
            steps = np.cumsum(self.ticks_per_frame + jitter)
            steps -= steps[0]
        return [int(t) + self.start_ticks for t in steps]


def _x264(name: str, params: str = "", **rest: Any) -> Stream:
    return Stream(f"h264_{name}", "libx264", params, **rest)


def _x265(name: str, params: str = "", **rest: Any) -> Stream:
    return Stream(f"hevc_{name}", "libx265", params, **rest)


# One row, one line.
# fmt: off
STREAMS: tuple[Stream, ...] = (
    # H.264: presets and tunes
    _x264("ultrafast", preset="ultrafast", wrote="cabac=0 8x8dct=0", shows={"b_pictures": 0}),
    _x264("superfast", preset="superfast", size=(144, 80), shows={"min_b_pictures": 10}),
    _x264("medium", preset="medium", size=(192, 128), shows={"min_reference_b": 1}),
    _x264("slow", preset="slow", size=(128, 96)),
    _x264("slower", preset="slower", scene="cuts"),
    _x264("veryslow", preset="veryslow", wrote="ref=16 bframes=8 direct=3", shows={"min_longest_b_run": 3}),
    _x264("placebo", preset="placebo", frames=40),
    _x264("zerolatency", tune="zerolatency", wrote="bframes=0 mbtree=0"),
    _x264("animation", tune="animation", preset="medium", scene="still"),
    # B pictures and pyramids
    _x264("bframes0", "bframes=0:ref=1:scenecut=0", shows={"b_pictures": 0, "idr": 1}),
    _x264("bframes1", "bframes=1:b-pyramid=none:b-adapt=0:scenecut=0", shows={"longest_b_run": 1}),
    _x264("bframes2_strict", "bframes=2:b-pyramid=strict:b-adapt=0:scenecut=0", shows={"min_reference_b": 5}),
    _x264("bframes3_normal", "bframes=3:b-pyramid=normal:b-adapt=2", shows={"min_reference_b": 5}),
    _x264("bframes5_normal", "bframes=5:b-pyramid=normal:b-adapt=2:keyint=25", size=(128, 96)),
    _x264("bframes8_none", "bframes=8:b-pyramid=none:b-adapt=0:scenecut=0", shows={"longest_b_run": 8, "reference_b": 0}),
    _x264("bframes8_strict", "bframes=8:b-pyramid=strict:b-adapt=0:scenecut=0:keyint=30", shows={"longest_b_run": 8}),
    _x264("bframes16_none", "bframes=16:b-pyramid=none:b-adapt=0:scenecut=0", shows={"longest_b_run": 16, "reference_b": 0}),
    _x264("bframes16_strict", "bframes=16:b-pyramid=strict:b-adapt=0:ref=4:scenecut=0", scene="still", shows={"longest_b_run": 16, "min_reference_b": 2}),
    _x264("bframes16_normal", "bframes=16:b-pyramid=normal:b-adapt=0:scenecut=0:ref=8", shows={"longest_b_run": 16, "min_reference_b": 2}),
    # reference lists
    _x264("ref2", "ref=2:bframes=0"),
    _x264("ref5", "ref=5:bframes=2:mixed-refs=1", preset="medium"),
    _x264("ref8_bframes4", "ref=8:bframes=4:b-adapt=0", preset="medium"),
    _x264("ref16", "ref=16:bframes=3", preset="medium", scene="cuts"),
    _x264("ref16_bframes16", "ref=16:bframes=16:b-adapt=0:b-pyramid=normal:scenecut=0", preset="medium", frames=80),
    # GOPs
    _x264("keyint1", "keyint=1", frames=40, shows={"idr": 40}),
    _x264("keyint2", "keyint=2:bframes=0:scenecut=0", frames=40, shows={"idr": 20}),
    _x264("keyint5", "keyint=5:bframes=2:scenecut=0", shows={"idr": 12}),
    _x264("scenecuts", "keyint=40:min-keyint=1:scenecut=80", scene="cuts", shows={"min_idr": 4}),
    _x264("keyint250", "keyint=250:scenecut=0:bframes=3", frames=120, shows={"idr": 1}),
    _x264("keyint_infinite", "keyint=infinite:scenecut=0", frames=100, preset="medium", shows={"idr": 1}),
    _x264("open_gop", "open-gop=1:keyint=10:min-keyint=1:bframes=3", shows={"idr": 1, "min_recovery_points": 4}),
    _x264("open_gop_pyramid", "open-gop=1:keyint=15:bframes=5:b-pyramid=normal:ref=4:b-adapt=0:scenecut=0", shows={"idr": 1, "min_recovery_points": 3}),
    _x264("open_gop_bframes7", "open-gop=1:keyint=8:min-keyint=1:bframes=7:b-adapt=0:scenecut=0", frames=80, shows={"idr": 1, "min_recovery_points": 8}),
    _x264("open_gop_bluray", "open-gop=1:bluray-compat=1:keyint=12:slices=4:level=41:vbv-maxrate=4000:vbv-bufsize=4000", size=(128, 128), shows={"slices": 4}),
    _x264("anchors8", "open-gop=1:bframes=7:b-pyramid=none:keyint=250:scenecut=0", picture_types="IBBBBBBB" * 8, frames=64, shows={"intra_pictures": 8, "idr": 1, "reference_b": 0, "longest_b_run": 7}),
    # weighted prediction
    _x264("weightp0", "weightp=0:weightb=0:bframes=2", scene="fades"),
    _x264("weightp1", "weightp=1:bframes=0", scene="fades"),
    _x264("weightp2", "weightp=2:ref=5:bframes=0", scene="fades", preset="medium"),
    _x264("weightb", "weightp=2:weightb=1:bframes=5:b-adapt=0:b-pyramid=strict", scene="fades"),
    # direct modes
    _x264("direct_none", "direct=none:bframes=3", preset="medium"),
    _x264("direct_spatial", "direct=spatial:bframes=5:ref=1:b-pyramid=strict:b-adapt=0", preset="medium"),
    _x264("direct_temporal", "direct=temporal:bframes=4:b-pyramid=normal:ref=4:b-adapt=0", preset="medium", frames=80),
    _x264("direct_auto", "direct=auto:bframes=3", preset="medium"),
    # entropy coding and slices
    _x264("cavlc", "cabac=0:bframes=3"),
    _x264("cavlc_slices4", "cabac=0:slices=4:bframes=3:8x8dct=0", size=(96, 96), shows={"slices": 4}),
    _x264("slices2", "slices=2:bframes=2", shows={"slices": 2}),
    _x264("slices8", "slices=8:bframes=3:b-pyramid=strict:ref=3:weightp=2", size=(128, 144), shows={"slices": 8}),
    _x264("slice_max_size", "slice-max-size=200:bframes=4:ref=1:b-pyramid=strict:b-adapt=0", size=(128, 96), shows={"min_slices": 4}),
    # interlaced
    _x264("tff", "tff=1:bframes=0:ref=2", fields="tff", size=(96, 96), shows={"interlaced": 60}),
    _x264("bff", "bff=1:bframes=5:ref=1:b-pyramid=strict:b-adapt=0", fields="bff", size=(96, 96), shows={"interlaced": 60, "min_b_pictures": 5}),
    _x264("mbaff_temporal", "tff=1:bframes=5:ref=5:direct=temporal:b-pyramid=normal:b-adapt=0", fields="tff", size=(128, 96), preset="medium", shows={"interlaced": 60}),
    _x264("mbaff_cavlc_slices", "tff=1:cabac=0:slices=2:bframes=2", fields="tff", size=(96, 128), shows={"slices": 2, "interlaced": 60}),
    _x264("mbaff_open_gop", "tff=1:open-gop=1:keyint=12:bframes=3", fields="tff", size=(96, 96), shows={"interlaced": 60, "idr": 1}),
    _x264("fake_interlaced", "fake-interlaced=1:bframes=3", size=(96, 96), shows={"interlaced": 0}),
    # intra refresh: key packets that are no starts
    _x264("intra_refresh", "intra-refresh=1:keyint=20:bframes=0:scenecut=0", frames=100, shows={"idr": 1, "min_recovery_points": 3}),
    _x264("intra_refresh_bframes", "intra-refresh=1:keyint=24:bframes=3:scenecut=0", frames=100, shows={"idr": 1, "min_recovery_points": 2}),
    # sample formats
    _x264("10bit", "bframes=3:keyint=30", pix_fmt="yuv420p10le", shows={"pix_fmt": "yuv420p10le"}),
    _x264("422", "bframes=3", pix_fmt="yuv422p", shows={"pix_fmt": "yuv422p"}),
    _x264("422_10bit_mbaff", "tff=1:bframes=3", pix_fmt="yuv422p10le", fields="tff", size=(96, 96), shows={"pix_fmt": "yuv422p10le", "interlaced": 60}),
    _x264("444", "bframes=5:ref=1:b-pyramid=strict:b-adapt=0", pix_fmt="yuv444p", shows={"pix_fmt": "yuv444p"}),
    _x264("444_lossless", "qp=0:bframes=0", pix_fmt="yuv444p", frames=30),
    _x264("monochrome", "bframes=3", pix_fmt="gray"),
    # sizes and colours
    _x264("98x58", "bframes=3", size=(98, 58), shows={"width": 98, "height": 58}),
    _x264("853x479_444", "bframes=2:keyint=12", pix_fmt="yuv444p", size=(853, 479), frames=20, shows={"width": 853, "height": 479}),
    _x264("650x650", "bframes=5:ref=1:b-pyramid=strict:b-adapt=0:keyint=12", size=(650, 650), frames=20),
    _x264("full_range_709", "range=pc:colormatrix=bt709:colorprim=bt709:transfer=bt709:bframes=2", pix_fmt="yuvj420p", shows={"colorspace": 1, "color_range": 2}),
    # containers and clocks
    _x264("vfr", "bframes=3", uneven=True, ticks_per_frame=512, shows={"min_distinct_durations": 10}),
    _x264("mkv_late_start", "bframes=2:keyint=20", container="mkv", ticks_per_frame=100, start_ticks=30000, shows={"start_ticks": 10000}),
    _x264("mpegts", "bframes=3:keyint=20", container="ts"),
    _x264("annex_b", "bframes=3:b-pyramid=normal:keyint=24", container="h264"),
    _x264("avi", "bframes=2:keyint=24", container="avi"),
    _x264("fragmented", "bframes=3:keyint=15", container_options={"movflags": "frag_keyframe+empty_moov+default_base_moof"}),
    _x264("no_reorder_depth", "bframes=3:b-pyramid=normal:b-adapt=0:keyint=30:scenecut=0", container="h264", vui=False),
    _x264("constrained_intra", "constrained-intra=1:8x8dct=0:no-deblock=1:bframes=2"),
    # HEVC: the presets
    _x265("ultrafast", preset="ultrafast"),
    _x265("medium", preset="medium", size=(128, 96)),
    _x265("slower", preset="slower", frames=30),
    # B pictures, references, GOPs
    _x265("bframes0", "bframes=0:ref=1", shows={"b_pictures": 0}),
    _x265("bframes3_flat", "bframes=3:b-adapt=0:b-pyramid=0:scenecut=0", shows={"longest_b_run": 3}),
    _x265("bframes8", "ref=1:bframes=8:b-adapt=0:scenecut=0", shows={"longest_b_run": 8, "min_reference_b": 4}),
    _x265("bframes16", "bframes=16:b-adapt=0:scenecut=0:rc-lookahead=30", frames=80, shows={"longest_b_run": 16}),
    _x265("ref6", "ref=6:bframes=4:b-adapt=0", preset="fast", frames=40),
    _x265("keyint1", "keyint=1:bframes=0", frames=24, shows={"intra_pictures": 24}),
    _x265("keyint5_closed", "keyint=5:min-keyint=5:open-gop=0:bframes=2:scenecut=0", shows={"idr": 12, "rasl": 0}),
    _x265("open_gop", "keyint=10:min-keyint=1:open-gop=1:bframes=3:b-adapt=0:scenecut=0", shows={"min_cra": 4, "min_rasl": 6}),
    _x265("open_gop_bframes8", "ref=1:keyint=18:min-keyint=1:open-gop=1:bframes=8:b-adapt=0:scenecut=0", frames=80, shows={"min_cra": 3, "min_rasl": 12}),
    _x265("radl", "keyint=12:min-keyint=12:open-gop=0:radl=2:bframes=3:b-adapt=0:scenecut=0", shows={"min_radl": 4}),
    _x265("keyint250", "keyint=250:min-keyint=250:scenecut=0", frames=100, shows={"idr": 1}),
    # prediction and tools
    _x265("weight_off", "weightp=0:weightb=0:bframes=2", scene="fades"),
    _x265("weight_on", "weightp=1:weightb=1:ref=1:bframes=5:b-adapt=0", preset="medium", scene="fades", frames=40),
    _x265("intra_refresh", "intra-refresh=1:keyint=20:bframes=0:ref=1", frames=60),
    _x265("temporal_layers3", "temporal-layers=3:bframes=3:b-adapt=0:keyint=32", container="hevc", shows={"min_temporal_layers": 2}),
    _x265("slices4", "slices=4:ctu=16:ref=1:bframes=5:b-adapt=0", size=(96, 128), shows={"slices": 4}),
    _x265("wpp", "wpp=1:ctu=16:ref=1:bframes=6:b-adapt=0", size=(128, 96)),
    _x265("tools", "constrained-intra=1:sao=0:no-deblock=1:tskip=1:temporal-mvp=0:amp=1:rect=1:scaling-list=default", preset="medium", frames=30),
    _x265("lossless_444", "lossless=1:bframes=2", pix_fmt="yuv444p", frames=24, shows={"pix_fmt": "yuv444p"}),
    # sample formats, sizes, containers
    _x265("main10", "ref=1:bframes=4:keyint=20", pix_fmt="yuv420p10le", shows={"pix_fmt": "yuv420p10le"}),
    _x265("422_10bit", "ref=1:bframes=5:b-adapt=0", pix_fmt="yuv422p10le", frames=40, shows={"pix_fmt": "yuv422p10le"}),
    _x265("98x58_ts", "ref=1:bframes=4:b-adapt=0:keyint=20", size=(98, 58), container="ts", shows={"width": 98, "height": 58}),
    _x265("vfr_2020", "bframes=3:colormatrix=bt2020nc:colorprim=bt2020:range=limited", uneven=True, ticks_per_frame=512, container="mkv", shows={"min_distinct_durations": 5, "colorspace": 9, "color_range": 1}),
)
# fmt: on


# ---- making and keeping


def make(stream: Stream, path: Path) -> None:
    """Encode one row of the table into `path`."""
    options = {"preset": stream.preset}
    if stream.tune:
        options["tune"] = stream.tune
    params = stream.params
    if stream.codec == "libx265":  # without `pools=none` every tiny encode starts a thread pool
        pools = "" if "wpp=1" in params or "slices" in params else ":wpp=0:pools=none"
        params = f"{params}{pools}:frame-threads=1:log-level=error".lstrip(":")
    time_base = Fraction(1, 30 * stream.ticks_per_frame)
    width, height = stream.size
    encode(
        path,
        draw_scene(stream.scene, stream.frames, width, height, stream.fields),
        codec=stream.codec,
        params=params,
        options=options,
        pix_fmt=stream.pix_fmt,
        pts=stream.pts(),
        time_base=time_base,
        container=stream.container,
        container_options=stream.container_options,
        picture_types=stream.picture_types,
        dts_shift=stream.dts_shift,
    )
    if not stream.vui:
        path.write_bytes(without_bitstream_restriction(path.read_bytes()))


def cache_folder(*sources: str) -> Path:
    """Where made streams are kept: named by everything that decides their bytes."""
    digest = hashlib.sha256(repr((av.__version__, np.__version__)).encode())
    for source in ("scenes.py", "encoding.py", *sources):
        digest.update((Path(__file__).parent / source).read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "daft_sparsevideo" / "test-streams" / digest.hexdigest()[:16]


def cached(path: Path, make: Callable[[Path], None]) -> Path:
    """A file in the cache, made now if it is not there; safe when several processes ask at once."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            made = Path(scratch) / path.name
            make(made)
            made.replace(path)
    return path


def stream_path(stream: Stream) -> Path:
    """The file of one row."""
    path = cache_folder("streams.py", "coded_facts.py") / f"{stream.name}.{stream.container}"
    return cached(path, lambda made: make(stream, made))
