# SPDX-License-Identifier: Apache-2.0
"""Files that no muxer writes willingly: timestamps, edit lists and streams changed after encoding."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
from av.video.stream import VideoStream

from scenes import Picture


def with_pts(source: Path, target: Path, change: Callable[[list[int]], list[int]]) -> Path:
    """Copy the video packets; `change` maps the presentation times, in order, to what the copy shall say."""
    with av.open(str(source)) as file, av.open(str(target), "w") as out:
        stream = file.streams.video[0]
        copy = out.add_stream_from_template(stream)
        packets = [packet for packet in file.demux(stream) if packet.size]
        order = np.argsort([packet.pts or 0 for packet in packets], kind="stable").tolist()
        changed = change([packets[i].pts or 0 for i in order])
        for i, pts in zip(order, changed, strict=True):
            packets[i].pts = pts
        for packet in packets:
            packet.stream = copy
            out.mux(packet)
    return target


def without_pts(source: Path, target: Path, number: int) -> Path:
    """Take the timestamps from the `number`-th video packet of an MPEG-TS (ISO/IEC 13818-1, 2.4.3.7)."""
    data = bytearray(source.read_bytes())
    starts = [at for at in range(len(data) - 9) if data[at : at + 4] == b"\0\0\1\xe0" and data[at + 6] >> 6 == 2]
    header = starts[number]
    assert data[header + 7] >> 6, "it has timestamps"
    data[header + 7] &= 0x3F
    data[header + 9 : header + 9 + data[header + 8]] = b"\xff" * data[header + 8]  # stuffing
    target.write_bytes(data)
    return target


def cut_to(source: Path, target: Path, skip_ticks: int, skip_ms: int) -> Path:
    """Move the start of an MP4's edit list (ISO/IEC 14496-12, 8.6.6) forward, as a cut by stream copy does.

    Args:
        skip_ticks: how far, in ticks of the track.
        skip_ms: the same in ticks of the movie (1/1000 s).
    """
    data = bytearray(source.read_bytes())
    entry = data.index(b"elst") + 12
    duration, media_time = struct.unpack_from(">Ii", data, entry)
    struct.pack_into(">Ii", data, entry, duration - skip_ms, media_time + skip_ticks)
    target.write_bytes(data)
    return target


def shift_fragments(source: Path, target: Path, ticks: int) -> Path:
    """Add to the decode time of every fragment of an MP4 (`tfdt`, 8.8.12): a late start without an edit list."""
    data = bytearray(source.read_bytes())
    assert b"elst" not in data
    at = data.find(b"tfdt")
    assert at > 0
    while at > 0:
        assert data[at + 4] == 1, "64-bit times"
        struct.pack_into(">Q", data, at + 8, struct.unpack_from(">Q", data, at + 8)[0] + ticks)
        at = data.find(b"tfdt", at + 4)
    target.write_bytes(data)
    return target


def without_moov(source: Path, target: Path) -> Path:
    """An MP4 whose writer died before its last step: the sample tables are missing."""
    data = source.read_bytes()
    at = data.index(b"moov") - 4
    size = struct.unpack_from(">I", data, at)[0]
    target.write_bytes(data[:at] + data[at + size :])
    return target


def with_two_videos(target: Path, first: list[Picture], second: list[Picture], *, default: int) -> Path:
    """One file with two H.264 streams, of which number `default` is marked so."""
    with av.open(str(target), "w") as out:
        streams: list[VideoStream] = []
        for pictures in (first, second):
            stream = out.add_stream("libx264", rate=30, options={"preset": "veryfast"})
            stream.height, stream.width = pictures[0].shape[:2]
            stream.pix_fmt = "yuv420p"
            stream.disposition = av.stream.Disposition.default if len(streams) == default else av.stream.Disposition(0)
            streams.append(stream)
        for stream, pictures in zip(streams, (first, second), strict=True):
            for i, picture in enumerate(pictures):
                frame = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format="yuv420p")
                frame.pts = i
                out.mux(stream.encode(frame))
            out.mux(stream.encode(None))
    return target


def with_cover(target: Path, pictures: list[Picture], cover: Picture) -> Path:
    """A film with an attached picture, larger than the film, as the first stream."""
    with av.open(str(target), "w") as out:
        art = out.add_stream("mjpeg", rate=1)
        art.height, art.width = cover.shape[:2]
        art.pix_fmt = "yuvj420p"
        art.disposition = av.stream.Disposition.attached_pic
        film = out.add_stream("libx264", rate=30, options={"preset": "veryfast"})
        film.height, film.width = pictures[0].shape[:2]
        film.pix_fmt = "yuv420p"
        frame = av.VideoFrame.from_ndarray(cover, "rgb24").reformat(format="yuvj420p")
        frame.pts = 0
        out.mux(art.encode(frame))
        out.mux(art.encode(None))
        for i, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format="yuv420p")
            frame.pts = i
            out.mux(film.encode(frame))
        out.mux(film.encode(None))
    return target


def with_packets(source: Path, target: Path, change: Callable[[int, bytes], bytes]) -> Path:
    """Copy the video packets; `change` gets number (in decode order) and bytes of each, and b"" leaves it out."""
    with av.open(str(source)) as file, av.open(str(target), "w") as out:
        stream = file.streams.video[0]
        copy = out.add_stream_from_template(stream)
        for number, packet in enumerate(packet for packet in file.demux(stream) if packet.size):
            data = change(number, bytes(packet))
            if data:
                changed = av.Packet(data)
                changed.pts, changed.dts, changed.time_base = packet.pts, packet.dts, packet.time_base
                changed.duration, changed.is_keyframe = packet.duration, packet.is_keyframe
                changed.stream = copy
                out.mux(changed)
    return target
