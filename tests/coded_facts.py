# SPDX-License-Identifier: Apache-2.0
"""What an encoder really did, read from a finished file: settings are silently clipped or ignored."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import av
import av.video.frame
import numpy as np


def split_nals(data: bytes, *, length_prefixed: bool) -> list[bytes]:
    """The NAL units of one packet, of either packing."""
    if length_prefixed:
        units, at = [], 0
        while at + 4 <= len(data):
            size = struct.unpack_from(">I", data, at)[0]
            units.append(data[at + 4 : at + 4 + size])
            at += 4 + size
        return units
    starts = []
    at = data.find(b"\x00\x00\x01")
    while at >= 0:
        starts.append(at + 3)
        at = data.find(b"\x00\x00\x01", at + 3)
    ends = [start - 3 for start in starts[1:]] + [len(data)]
    return [data[start:end].rstrip(b"\x00") for start, end in zip(starts, ends, strict=False)]


@dataclass
class Facts:
    """What a finished file shows, read from its packets and from PyAV's decoded frames."""

    options: frozenset[str] = frozenset()  # tokens of the encoder's own options line
    frames: int = 0
    width: int = 0
    height: int = 0
    pix_fmt: str = ""
    longest_b_run: int = 0  # consecutive B pictures in presentation order
    b_pictures: int = 0
    reference_b: int = 0  # B pictures that are references
    intra_pictures: int = 0
    interlaced: int = 0
    key_packets: int = 0
    idr: int = 0
    cra: int = 0
    rasl: int = 0
    radl: int = 0
    recovery_points: int = 0
    slices: int = 0  # largest number in one picture
    temporal_layers: int = 0
    distinct_durations: int = 0
    start_ticks: int = 0
    colorspace: int = 0  # as FFmpeg numbers them: 1 is BT.709, 9 BT.2020
    color_range: int = 0  # 1 limited, 2 full


def facts(path: Path) -> Facts:  # noqa: PLR0915 - one fact after the other
    """Decode `path` once and say what it shows."""
    seen = Facts()
    shown: list[tuple[int, str]] = []
    with av.open(str(path)) as file:
        stream = file.streams.video[0]
        context = stream.codec_context
        context.thread_count = 1
        hevc = context.name == "hevc"
        extradata = context.extradata or b""
        prefixed = extradata[:1] == b"\x01"
        text = extradata
        layers: set[int] = set()
        b_reference_pts: list[int | None] = []
        for packet in file.demux(stream):
            data = bytes(packet)
            if data and len(text) < 1 << 16:
                text += data
            seen.key_packets += bool(packet.is_keyframe and data)
            slices = 0
            reference = False
            for nal in split_nals(data, length_prefixed=prefixed):
                kind = (nal[0] >> 1) & 63 if hevc else nal[0] & 31
                if hevc and kind < 32:
                    slices += 1
                    layers.add(nal[1] & 7)
                    first = bool(nal[2] & 0x80)
                    seen.idr += first and kind in (19, 20)
                    seen.cra += first and kind == 21
                    seen.rasl += first and kind in (8, 9)
                    seen.radl += first and kind in (6, 7)
                    reference |= kind not in (0, 2, 4, 6, 8)
                elif not hevc and kind in (1, 5):
                    slices += 1
                    seen.idr += kind == 5 and slices == 1
                    reference |= bool(nal[0] & 0x60)
                elif not hevc and kind == 6:
                    seen.recovery_points += nal[1:2] == b"\x06"
            seen.slices = max(seen.slices, slices)
            if reference:
                b_reference_pts.append(packet.pts)
            for frame in packet.decode():
                assert isinstance(frame, av.VideoFrame)
                shown.append(
                    (
                        frame.pts if frame.pts is not None else len(shown),
                        av.video.frame.PictureType(frame.pict_type).name,
                    )
                )
                seen.frames += 1
                seen.interlaced += frame.interlaced_frame
                seen.colorspace, seen.color_range = frame.colorspace, frame.color_range
                seen.width, seen.height, seen.pix_fmt = frame.width, frame.height, frame.format.name
        seen.temporal_layers = len(layers)
    line = text.partition(b"options: ")[2].partition(b"\x00")[0].partition(b"\x80")[0]
    seen.options = frozenset(line.decode("latin1").split())
    kinds = "".join(kind for _, kind in shown)
    runs = kinds.replace("P", "I").split("I")
    seen.longest_b_run = max(map(len, runs))
    seen.b_pictures, seen.intra_pictures = kinds.count("B"), kinds.count("I")
    kind_at = dict(shown)
    seen.reference_b = sum(pts is not None and kind_at.get(pts) == "B" for pts in b_reference_pts)
    ticks = [pts for pts, _ in shown]
    seen.distinct_durations = len(set(np.diff(ticks).tolist()))
    seen.start_ticks = ticks[0]
    return seen


def without_bitstream_restriction(annex_b: bytes) -> bytes:
    """Cut the VUI out of every H.264 sequence parameter set: the reorder depth is no longer stated anywhere."""
    out = b""
    for nal in split_nals(annex_b, length_prefixed=False):
        out += b"\x00\x00\x00\x01" + (_sps_without_vui(nal) if nal[0] & 31 == 7 else nal)
    return out


def _sps_without_vui(nal: bytes) -> bytes:
    """Rec. ITU-T H.264, 7.3.2.1.1: walk to vui_parameters_present_flag, clear it and end there."""
    bits = "".join(f"{byte:08b}" for byte in nal[1:].replace(b"\x00\x00\x03", b"\x00\x00"))
    at = 24  # profile_idc, constraint flags, level_idc

    def ue() -> int:
        nonlocal at
        zeros = bits.index("1", at) - at
        value = int(bits[at + zeros : at + 2 * zeros + 1], 2) - 1
        at += 2 * zeros + 1
        return value

    ue()  # seq_parameter_set_id
    if int(bits[:8], 2) in (100, 110, 122, 244):
        if ue() == 3:  # chroma_format_idc
            at += 1
        ue()  # bit_depth_luma_minus8
        ue()  # bit_depth_chroma_minus8
        at += 1  # qpprime_y_zero_transform_bypass_flag
        assert bits[at] == "0", "no scaling matrices are expected here"
        at += 1
    ue()  # log2_max_frame_num_minus4
    poc_type = ue()
    assert poc_type in (0, 2)
    if poc_type == 0:
        ue()  # log2_max_pic_order_cnt_lsb_minus4
    ue()  # max_num_ref_frames
    at += 1  # gaps_in_frame_num_value_allowed_flag
    ue()  # pic_width_in_mbs_minus1
    ue()  # pic_height_in_map_units_minus1
    frame_mbs_only = bits[at] == "1"
    at += 1 if frame_mbs_only else 2
    at += 1  # direct_8x8_inference_flag
    cropped = bits[at] == "1"
    at += 1
    if cropped:
        for _ in range(4):
            ue()
    kept = bits[:at] + "0" + "1"
    kept += "0" * (-len(kept) % 8)
    payload = bytes(int(kept[i : i + 8], 2) for i in range(0, len(kept), 8))
    escaped = payload
    for low in (0, 1, 2, 3):
        escaped = escaped.replace(bytes((0, 0, low)), bytes((0, 0, 3, low)))
    return nal[:1] + escaped


def reference_packets(path: Path) -> list[bool]:
    """For every H.264 packet in decode order: is it a reference, by the nal_ref_idc of its slices?"""
    flags = []
    with av.open(str(path)) as file:
        stream = file.streams.video[0]
        prefixed = (stream.codec_context.extradata or b"")[:1] == b"\x01"
        for packet in file.demux(stream):
            slices = [nal for nal in split_nals(bytes(packet), length_prefixed=prefixed) if nal[0] & 31 in (1, 5)]
            if slices:
                flags.append(any(nal[0] & 0x60 for nal in slices))
    return flags
