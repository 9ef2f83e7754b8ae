# SPDX-License-Identifier: Apache-2.0
"""The rows of an index file that tell of one shard: one for each coded picture (or field of one), in decode order."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from daft_sparsevideo import _core
from daft_sparsevideo.errors import IndexFileError

VERSION = f"1.{_core.INDEX_VERSION} ffmpeg-{'.'.join(_core.ffmpeg_version().split('.')[:2])}"
"""Which layout, which way of indexing, and which decoder an index file was made with."""

_REFERENCE = pa.field("element", pa.int32(), nullable=False)
SCHEMA = pa.schema(
    [
        pa.field("shard", pa.string(), nullable=False),  # path, relative to a folder that is not told
        pa.field("pts", pa.int64()),  # ticks of the stream's time base; null: the container does not say
        pa.field("dts", pa.int64()),
        pa.field("gap", pa.int64()),  # bytes from the end of the picture before to its first one; null: not known
        pa.field("size", pa.uint32(), nullable=False),  # bytes
        pa.field("flags", pa.uint16(), nullable=False),  # PictureTraits of plan.h; 256: the second field of a picture
        pa.field("references", pa.list_(_REFERENCE), nullable=False),  # how many pictures back
        pa.field("reach", pa.int32(), nullable=False),  # how far beyond these the first one is that it retains
        pa.field("frame", pa.int32()),  # number in presentation order; null: it is never shown
        pa.field("frame_pts", pa.int64()),  # of that frame, where it is not pts
        pa.field("duration", pa.int64(), nullable=False),  # of that frame
        pa.field("width", pa.int32(), nullable=False),
        pa.field("height", pa.int32(), nullable=False),
        pa.field("lists_hash", pa.uint32(), nullable=False),  # of its slices' reference lists
        pa.field("checksum", pa.uint32(), nullable=False),  # Adler-32 of its bytes
        pa.field("headers", pa.binary(), nullable=False),  # what the decoder must see when its samples are not needed
        pa.field("facts", pa.string()),  # in a shard's first row: what holds for all of it, and a digest, as JSON
        pa.field("extradata", pa.binary()),  # in a shard's first row: the codec's, as the container has it
    ]
)

_NO_PTS = np.iinfo(np.int64).min
_NONE = {"pts": _NO_PTS, "dts": _NO_PTS, "frame": -1}  # what stands for null in the core
_LISTS = {"references": "reference_offsets", "headers": "header_offsets"}

_Columns = dict[str, npt.NDArray[Any]]


def table_of(contents: _core.IndexContents, name: str) -> pa.Table:
    """The rows of the shard that an index file calls `name`."""
    columns, facts = contents.columns, contents.facts
    count = columns["pts"].size
    digest, extradata = _digest(name, facts, columns), facts.pop("extradata")
    later = [None] * (count - 1)
    arrays: dict[str, pa.Array] = {
        "shard": pa.array([name]).take(pa.array(np.zeros(count, np.int64))),
        "facts": pa.array([_text(facts | {"digest": digest}), *later], pa.string()),
        "extradata": pa.array([extradata, *later], pa.binary()),
        "reach": pa.array(columns["reach"] - _farthest_references(columns)),
    }
    for field in SCHEMA:
        if field.name in _LISTS:
            offsets = pa.array(columns[_LISTS[field.name]].astype(np.int32))
            values = columns[field.name]
            if pa.types.is_list(field.type):
                arrays[field.name] = pa.ListArray.from_arrays(offsets, pa.array(values), type=field.type)
            else:
                buffers = [None, offsets.buffers()[1], pa.py_buffer(values)]
                arrays[field.name] = pa.BinaryArray.from_buffers(pa.binary(), count, buffers)
        elif field.name == "frame_pts":
            told = (columns["frame"] < 0) | (columns["frame_pts"] == columns["pts"])
            arrays[field.name] = pa.array(columns[field.name], mask=told)
        elif field.name == "gap":
            arrays[field.name] = _gaps(columns["position"], columns["size"])
        elif field.name in _NONE:
            arrays[field.name] = pa.array(columns[field.name], mask=columns[field.name] == _NONE[field.name])
        elif field.name not in arrays:
            arrays[field.name] = pa.array(columns[field.name])
    return pa.table([arrays[name] for name in SCHEMA.names], schema=SCHEMA)


def contents_of(rows: pa.Table, name: str) -> _core.IndexContents:
    """What the rows of one shard say, if they are as they were written; their truth is for the core to check.

    Raises:
        IndexFileError: They are not.
    """
    columns: _Columns = {}
    arrays = {field.name: rows.column(field.name).combine_chunks() for field in SCHEMA}
    for field in SCHEMA:
        array = arrays[field.name]
        if field.name in _LISTS:
            values, offsets = _list_parts(array)
            columns[field.name], columns[_LISTS[field.name]] = values, offsets
        elif field.name in _NONE:
            columns[field.name] = _numbers(array.fill_null(_NONE[field.name]))
        elif field.name not in ("shard", "facts", "extradata", "frame_pts", "gap"):
            columns[field.name] = _numbers(array)
    columns["position"] = _positions(arrays["gap"], columns["size"])
    frame_pts = np.where(columns["frame"] < 0, 0, columns["pts"])
    given = _numbers(arrays["frame_pts"].is_valid())
    columns["frame_pts"] = np.where(given, _numbers(arrays["frame_pts"].fill_null(0)), frame_pts)
    columns["reach"] = columns["reach"] + _farthest_references(columns)
    facts = _facts(arrays["facts"][0].as_py()) | {"extradata": arrays["extradata"][0].as_py()}
    if facts.pop("digest") != _digest(name, facts, columns):
        raise IndexFileError("it is damaged: its rows do not have the digest that they were written with")
    return _core.IndexContents(facts, columns)


def _gaps(position: npt.NDArray[np.int64], size: npt.NDArray[np.uint32]) -> pa.Array:
    """How far each picture lies behind the one before, of those whose position is known."""
    known = position >= 0
    ends = position[known] + size[known]
    gaps = np.zeros(position.size, np.int64)
    gaps[known] = position[known] - np.concatenate([[0], ends[:-1]])
    return pa.array(gaps, mask=~known)


def _positions(gap: pa.Array, size: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """The inverse of `_gaps`."""
    known = _numbers(gap.is_valid())
    ends = np.cumsum(_numbers(gap.fill_null(0))[known] + size[known])
    position = np.full(size.size, -1, np.int64)
    position[known] = ends - size[known]
    return position


def _numbers(array: pa.Array) -> npt.NDArray[Any]:
    numbers: npt.NDArray[Any] = np.ascontiguousarray(array.to_numpy(zero_copy_only=False))
    return numbers


def _list_parts(array: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The values of all lists (bytes, for binary), and where each list begins in them."""
    count, begin = len(array), array.offset
    buffers = array.buffers()
    offsets = np.frombuffer(buffers[1], np.int32)[begin : begin + count + 1].astype(np.int64)
    if pa.types.is_list(array.type):
        values = _numbers(array.flatten())
    elif buffers[2] is None:
        values = np.zeros(0, np.uint8)
    else:
        values = np.frombuffer(buffers[2], np.uint8)[offsets[0] : offsets[-1]]
    return values, offsets - offsets[0]


def _farthest_references(columns: _Columns) -> npt.NDArray[np.int32]:
    """How many pictures back each picture's farthest reference is; 0 without any."""
    offsets, references = columns["reference_offsets"], columns["references"]
    farthest = np.zeros(offsets.size - 1, np.int32)
    some = np.diff(offsets) > 0
    farthest[some] = references[offsets[1:][some] - 1]
    return farthest


def _digest(name: str, facts: dict[str, Any], columns: _Columns) -> str:
    digest = hashlib.blake2b(repr((VERSION, name, sorted(facts.items()))).encode(), digest_size=16)
    for column in sorted(columns):
        digest.update(f"{column} {columns[column].dtype.str} {columns[column].size} ".encode())
        digest.update(np.ascontiguousarray(columns[column]).data)
    return digest.hexdigest()


def _text(facts: dict[str, Any]) -> str:
    """Facts as JSON, bytes as hexadecimal digits."""
    return json.dumps(facts, default=bytes.hex, separators=(",", ":"))


def _facts(text: str) -> dict[str, Any]:
    facts = json.loads(text)
    for events in ("parameter_sets", "extradata_changes"):
        facts[events] = [(picture, bytes.fromhex(digits)) for picture, digits in facts[events]]
    return dict(facts)
