# SPDX-License-Identifier: Apache-2.0
"""Writes cpp_ext/tests/clips.h: tiny videos for the native tests, as text, so that these need no encoder."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from encoding import encode
from scenes import draw_scene

HEADER = Path(__file__).parents[1] / "cpp_ext" / "tests" / "clips.h"
LARGEST_BYTES = 3000
ROW_BYTES = 48


@dataclass(frozen=True)
class Recipe:
    """One clip; `about` says what it is there for."""

    name: str
    container: str
    about: str
    params: str = ""
    codec: str = "libx264"
    options: Mapping[str, str] = field(default_factory=dict)
    frames: int = 20
    size: tuple[int, int] = (48, 32)


X265 = "min-keyint=8:open-gop=1:info=0:log-level=none"
RECIPES = (
    Recipe(
        "pyramid",
        "mp4",
        "closed GOPs, pyramid",
        "keyint=20:bframes=3:b-adapt=0:b-pyramid=normal:ref=1:qp=38:scenecut=0",
    ),
    Recipe(
        "slices",
        "h264",
        "Annex B, open GOPs, two slices",
        "keyint=8:bframes=3:b-adapt=0:b-pyramid=normal:ref=1:slices=2:open-gop=1:qp=40:scenecut=0",
    ),
    Recipe(
        "fields",
        "mp4",
        "interlaced",
        "keyint=6:bframes=3:b-adapt=0:b-pyramid=normal:ref=1:qp=40:tff=1:scenecut=0",
        frames=12,
    ),
    Recipe("open", "mkv", "open GOPs", f"keyint=8:bframes=3:b-adapt=0:ref=1:qp=40:scenecut=0:{X265}", "libx265"),
    Recipe("stream", "ts", "packets that are no byte ranges", "keyint=8:bframes=2:qp=44", frames=6, size=(32, 32)),
    Recipe(
        "hidden",
        "mp4",
        "hidden frames",
        "hierarchical-levels=2:lp=1",
        "libsvtav1",
        {"preset": "10", "g": "12", "crf": "63"},
        size=(64, 64),
    ),
    Recipe(
        "units",
        "mkv",
        "hidden frames, intra-only ones, packets that are no byte ranges",
        "hierarchical-levels=3:irefresh-type=1:lp=1",
        "libsvtav1",
        {"preset": "10", "g": "8", "crf": "63"},
        size=(64, 64),
    ),
    Recipe("part2", "mp4", "no graph", "", "mpeg4", {"g": "4", "qmin": "31", "qmax": "31"}, 7, (32, 32)),
    Recipe("vp9", "mkv", "no graph", "", "libvpx-vp9", {"g": "8", "crf": "60", "b": "0"}, 12),
)


def main() -> None:
    """Encode every recipe and write the header."""
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        "// Made by tests/make_native_clips.py: whole files, two digits a byte.",
        "// clang-format off",
        "#pragma once",
        "",
        "struct Clip {",
        "  const char* name;",
        "  const char* digits;",
        "};",
        "",
        "constexpr Clip kClips[] = {",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for recipe in RECIPES:
            path = encode(
                Path(folder) / f"{recipe.name}.{recipe.container}",
                draw_scene("mixed", recipe.frames, *recipe.size),
                codec=recipe.codec,
                params=recipe.params,
                options=recipe.options,
                container_options={"fflags": "+bitexact"},  # no random names in Matroska
            )
            data = path.read_bytes()
            if len(data) > LARGEST_BYTES:
                raise SystemExit(f"{path.name} has {len(data)} bytes, more than {LARGEST_BYTES}")
            lines.append(f'    {{"{path.name}",  // {recipe.codec}, {recipe.about}, {recipe.frames} frames')
            rows = [data[begin : begin + ROW_BYTES].hex() for begin in range(0, len(data), ROW_BYTES)]
            lines += [f'     "{row}"' for row in rows[:-1]]
            lines.append(f'     "{rows[-1]}"}},')
    lines += ["};", ""]
    HEADER.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
