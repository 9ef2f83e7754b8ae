# SPDX-License-Identifier: Apache-2.0
"""AV1 streams that no encoder at hand writes: headers changed bit by bit, where a trace of FFmpeg's says the fields lie."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import av
from av.bitstream import BitStreamFilterContext

SEQUENCE_HEADER, TEMPORAL_DELIMITER, FRAME = 1, 2, 6
FIELD = re.compile(r"(\d+) +([\w.]+(?:\[\d+\])*) +([01]*) ?= -?\d+$")


@dataclass(frozen=True)
class Obu:
    """One OBU with a size field; of `fields`, the name and the bits, in order, of all that follows the size."""

    kind: int
    fields: tuple[tuple[str, str], ...]
    tiles: bytes = b""
    spatial_id: int | None = None

    @property
    def bits(self) -> str:
        return "".join(bits for _, bits in self.fields)

    def coded(self) -> bytes:
        """The bytes of it."""
        bits = self.bits
        bits += "0" * (-len(bits) % 8)
        payload = bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8)) + self.tiles
        size, sizes = len(payload), bytearray()
        while size >= 128:
            sizes.append(size & 127 | 128)
            size >>= 7
        sizes.append(size)
        header = bytes([self.kind << 3 | 2])
        if self.spatial_id is not None:
            header = bytes([self.kind << 3 | 6, self.spatial_id << 3])
        return header + bytes(sizes) + payload


def read_units(path: Path) -> list[list[Obu]]:
    """The OBUs of every packet; all frames must be OBU_FRAME."""
    units = []
    previous = av.logging.get_level()
    av.logging.set_level(av.logging.INFO)
    try:
        with av.open(str(path)) as file:
            stream = file.streams.video[0]
            bsf = BitStreamFilterContext("trace_headers", stream)
            for packet in file.demux(stream):
                data = bytes(packet)
                if data:
                    with av.logging.Capture(local=False) as lines:
                        bsf.filter(packet)
                    units.append(_read_unit(data, [text.rstrip() for _, _, text in lines]))
    finally:
        av.logging.set_level(previous)
    return units


def _read_unit(data: bytes, lines: list[str]) -> list[Obu]:
    starts = [number for number, line in enumerate(lines) if line == "OBU header"]
    obus, at = [], 0
    for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True):
        found = [match.groups() for line in lines[start:stop] if (match := FIELD.match(line))]
        size_at = next(number for number, (_, name, _) in enumerate(found) if name == "obu_size")
        kind = int(next(bits for _, name, bits in found if name == "obu_type"), 2)
        payload = (int(found[size_at][0]) + len(found[size_at][2])) // 8
        size = payload + _leb128(found[size_at][2])
        fields = tuple((name, bits) for _, name, bits in found[size_at + 1 :])
        header_bytes = -(-sum(len(bits) for _, bits in fields) // 8)
        tiles = data[at + payload + header_bytes : at + size] if kind == FRAME else b""
        obu = Obu(kind, fields, tiles)
        assert obu.coded()[payload:] == data[at + payload : at + size], "the trace holds every bit"
        obus.append(obu)
        at += size
    assert at == len(data)
    return obus


def _leb128(bits: str) -> int:
    return sum((int(bits[at : at + 8], 2) & 127) << 7 * (at // 8) for at in range(0, len(bits), 8))


def write_ivf(path: Path, units: Iterable[Iterable[Obu]], size: tuple[int, int]) -> Path:
    """Write temporal units into an IVF file at 30 frames a second."""
    packets = [b"".join(obu.coded() for obu in unit) for unit in units]
    width, height = (side.to_bytes(2, "little") for side in size)
    numbers = b"".join(number.to_bytes(4, "little") for number in (30, 1, len(packets), 0))
    out = b"DKIF\0\0\x20\0AV01" + width + height + numbers
    for pts, packet in enumerate(packets):
        out += len(packet).to_bytes(4, "little") + pts.to_bytes(8, "little") + packet
    path.write_bytes(out)
    return path


def replace_fields(obu: Obu, names: tuple[str, str], bits: str) -> Obu:
    """Put `bits` in the place of all fields from the first of `names` to the last."""
    order = [name for name, _ in obu.fields]
    begin, end = order.index(names[0]), order.index(names[1]) + 1
    fields = (*obu.fields[:begin], ("", bits), *obu.fields[end:])
    # What aligns the header with a byte is written anew.
    kept = tuple(field for field in fields if field[0] != "zero_bit")
    return Obu(obu.kind, kept, obu.tiles, obu.spatial_id)


def with_short_signaling(obu: Obu) -> Obu:
    """Name two references of a frame and leave the others to the rule of AV1 7.8."""
    values = dict(obu.fields)
    if values.get("frame_refs_short_signaling") != "0":
        return obu
    named = "1" + values["ref_frame_idx[0]"] + values["ref_frame_idx[3]"]
    return replace_fields(obu, ("frame_refs_short_signaling", "ref_frame_idx[6]"), named)


def with_operating_points(obu: Obu, masks: tuple[int, ...]) -> Obu:
    """Give a sequence header one operating point for each of `masks` (operating_point_idc)."""
    if obu.kind != SEQUENCE_HEADER:
        return obu
    level = dict(obu.fields)["seq_level_idx[0]"]
    assert int(level, 2) <= 7, "there is no seq_tier"
    points = "".join(f"{mask:012b}{level}" for mask in masks)
    changed = replace_fields(obu, ("operating_points_cnt_minus_1", "seq_level_idx[0]"), f"{len(masks) - 1:05b}{points}")
    body = "".join(bits for name, bits in changed.fields if not name.startswith("trailing"))
    return Obu(SEQUENCE_HEADER, (("", body + "1"),))


def change_obus(units: list[list[Obu]], change: Callable[[Obu], Obu]) -> list[list[Obu]]:
    """Change every OBU."""
    return [[change(obu) for obu in unit] for unit in units]


def in_two_layers(units: list[list[Obu]]) -> list[list[Obu]]:
    """Join each two temporal units of one frame into one of two spatial layers; the upper one is shown."""
    joined = []
    for lower, upper in zip(units[::2], units[1::2], strict=True):
        unit = [with_operating_points(obu, (0x301, 0x101)) for obu in lower if obu.kind != FRAME]
        for spatial_id, part in enumerate((lower, upper)):
            unit += [Obu(FRAME, obu.fields, obu.tiles, spatial_id) for obu in part if obu.kind == FRAME]
        joined.append(unit)
    return joined
