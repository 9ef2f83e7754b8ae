# SPDX-License-Identifier: Apache-2.0
"""Many pictures on one sheet, each with a label."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

TILE_WIDTH = 200
LABEL_HEIGHT = 20
GAP = 6


@dataclass(frozen=True, eq=False)
class Tile:
    """An RGB picture [height, width, 3] and what is written under it."""

    picture: npt.NDArray[np.uint8]
    label: str


def save_contact_sheet(path: Path, tiles: list[Tile], *, columns: int) -> Path:
    """Write the tiles as a PNG, `columns` in a row.

    Args:
        path: The file to write.
        tiles: At least one; each is scaled to the same width.
        columns: Tiles side by side.

    Returns:
        `path`.

    """
    heights = [round(tile.picture.shape[0] * TILE_WIDTH / tile.picture.shape[1]) for tile in tiles]
    step_x, step_y = TILE_WIDTH + GAP, max(heights) + LABEL_HEIGHT + GAP
    columns = min(columns, len(tiles))
    rows = -(-len(tiles) // columns)
    sheet = Image.new("RGB", (columns * step_x + GAP, rows * step_y + GAP), "white")
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(13)
    for place, (tile, height) in enumerate(zip(tiles, heights, strict=True)):
        x, y = GAP + place % columns * step_x, GAP + place // columns * step_y
        sheet.paste(Image.fromarray(tile.picture).resize((TILE_WIDTH, height), Image.Resampling.LANCZOS), (x, y))
        pen.text((x + 2, y + height + 2), tile.label, fill="black", font=font)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path)
    return path
