# SPDX-License-Identifier: Apache-2.0
"""What an AV1 file really holds: every frame header of it, as the bitstream filter of PyAV's FFmpeg reads it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import av
from av.bitstream import BitStreamFilterContext

KEY, INTER, INTRA_ONLY, SWITCH = range(4)
ALL_SLOTS = 255
TRACED = re.compile(r"\d+ +(\w+(?:\[\d+\])*) +[01]* ?= (-?\d+)")
OBU_FRAME_HEADER, OBU_FRAME, OBU_TILE_GROUP = 3, 6, 4


@dataclass(frozen=True)
class Header:
    """One frame header; `references` are the numbers of the headers whose frames its slots hold."""

    packet: int
    values: dict[str, int]
    references: tuple[int, ...]

    @property
    def shows_existing(self) -> bool:
        return self.values.get("show_existing_frame") == 1

    @property
    def is_hidden(self) -> bool:
        return not self.shows_existing and self.values.get("show_frame", 1) == 0

    @property
    def kind(self) -> int:
        return self.values.get("frame_type", KEY)


@dataclass
class Av1Facts:
    """Counts over all headers of a file."""

    headers: list[Header] = field(default_factory=list)
    hidden: int = 0
    show_existing: int = 0
    key: int = 0
    shown_existing_key: int = 0
    hidden_key: int = 0
    intra_only: int = 0
    switch: int = 0
    short_signaling: int = 0
    error_resilient: int = 0
    superres: int = 0
    sizes: int = 0
    grain: int = 0
    tiles: int = 0  # largest log2 of columns and rows together
    tile_groups: int = 0
    segmentation: int = 0
    temporal_update: int = 0
    screen_content: int = 0
    intrabc: int = 0
    ref_mvs: int = 0
    longest_gop: int = 0  # frames shown from one key frame to the next
    longest_closure: int = 0
    largest_unit: int = 0  # frames of one packet


def av1_facts(path: Path) -> Av1Facts:
    """Read all headers of a file and count what is in them."""
    seen = Av1Facts(headers=frame_headers(path))
    sizes = set()
    shown = 0
    for header in seen.headers:
        values = header.values
        kind = header.kind
        if header.shows_existing:
            seen.show_existing += 1
            shown += 1
            seen.shown_existing_key += header.kind == KEY
            continue
        seen.hidden += header.is_hidden
        if kind == KEY:
            seen.key += 1
            seen.hidden_key += header.is_hidden
            seen.longest_gop, shown = max(seen.longest_gop, shown), 0
        shown += not header.is_hidden
        seen.intra_only += kind == INTRA_ONLY
        seen.switch += kind == SWITCH
        seen.short_signaling += values.get("frame_refs_short_signaling", 0)
        seen.error_resilient += values.get("error_resilient_mode", 0)
        seen.superres += values.get("use_superres", 0)
        sizes.add((values.get("frame_width_minus_1"), values.get("frame_height_minus_1"), values.get("coded_denom")))
        seen.grain += values.get("apply_grain", 0)
        seen.tiles = max(seen.tiles, values.get("tile_cols_log2", 0) + values.get("tile_rows_log2", 0))
        seen.tile_groups = max(seen.tile_groups, values["tile_groups"])
        seen.segmentation += values.get("segmentation_enabled", 0)
        seen.temporal_update += values.get("segmentation_temporal_update", 0)
        seen.screen_content += values.get("allow_screen_content_tools", 0)
        seen.intrabc += values.get("allow_intrabc", 0)
        seen.ref_mvs += values.get("use_ref_frame_mvs", 0)
    seen.largest_unit = max(Counter(header.packet for header in seen.headers).values())
    seen.longest_gop = max(seen.longest_gop, shown)
    seen.sizes = len(sizes)
    seen.longest_closure = max(len(closure_of(seen.headers, number)) for number in range(len(seen.headers)))
    return seen


def closure_of(headers: list[Header], number: int) -> set[int]:
    """The frames that are decoded for header `number`, itself among them unless it shows another one."""
    waiting, closure = [number], set()
    while waiting:
        header = waiting.pop()
        if header not in closure:
            closure.add(header)
            waiting += headers[header].references
    return {header for header in closure if not headers[header].shows_existing}


def frame_headers(path: Path) -> list[Header]:
    """Every frame header in coded order, with the slots simulated (AV1 7.20, 7.21)."""
    headers: list[Header] = []
    slots: list[int | None] = [None] * 8
    for packet, values in _traced(path):
        number = len(headers)
        if values.get("show_existing_frame"):
            shown = slots[values["frame_to_show_map_idx"]]
            references = [shown]
            values["frame_type"] = headers[shown].kind if shown is not None else INTER
            refresh = ALL_SLOTS if values["frame_type"] == KEY else 0
        else:
            is_intra = values.get("frame_type", KEY) in {KEY, INTRA_ONLY}
            references = [] if is_intra else [slots[values[f"ref_frame_idx[{i}]"]] for i in range(7)]
            refresh = values.get("refresh_frame_flags", ALL_SLOTS)
        headers.append(Header(packet, values, tuple(sorted({r for r in references if r is not None}))))
        slots = [number if refresh >> slot & 1 else held for slot, held in enumerate(slots)]
    return headers


def _traced(path: Path) -> list[tuple[int, dict[str, int]]]:
    """Of each frame header the number of its packet and its fields, in coded order."""
    frames: list[tuple[int, dict[str, int]]] = []
    previous = av.logging.get_level()
    av.logging.set_level(av.logging.INFO)
    try:
        with av.open(str(path)) as file:
            stream = file.streams.best("video")
            assert stream is not None
            bsf = BitStreamFilterContext("trace_headers", stream)
            for number, packet in enumerate(file.demux(stream)):
                with av.logging.Capture(local=False) as lines:
                    bsf.filter(packet if packet.size else None)
                _read_trace(number, [text.rstrip() for _, _, text in lines], frames)
    finally:
        av.logging.set_level(previous)
    return frames


def _read_trace(packet: int, lines: list[str], frames: list[tuple[int, dict[str, int]]]) -> None:
    kind = 0
    values: dict[str, int] = {}
    for line in lines:
        found = TRACED.match(line)
        if line == "Frame Header":
            values = {"tile_groups": 0}
            frames.append((packet, values))
        elif found is not None:
            name, value = found[1], int(found[2])
            if name == "obu_type":
                kind = value
                if kind == OBU_TILE_GROUP:
                    values["tile_groups"] += 1
            elif kind in {OBU_FRAME_HEADER, OBU_FRAME}:
                values[name] = value
