# SPDX-License-Identifier: Apache-2.0
"""Real files of public test suites: each frame alone and random sets on one reused decoder, against PyAV.

The folder is no part of this repository (see `conftest.shared_folder`); without it these tests are skipped by name.
`make test` asks a bounded sample of large files, SPARSEVIDEO_EXACTNESS=full everything.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import itertools
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import av
import numpy as np
import pytest

from conftest import shared_folder
from daft_sparsevideo import VideoDecoder, _core
from daft_sparsevideo.errors import FrameDecodeError, ShardFormatError, SparseVideoError
from oracle import Oracle, assert_same_picture, decode_all, decode_sequentially, digest_of, visible_planes
from requests_of_frames import random_request

CORPUS = shared_folder() / "corpus"
FULL = os.environ.get("SPARSEVIDEO_EXACTNESS") == "full"
RANDOM_SETS = 20
BUDGET_PIXELS = 80_000_000  # decoded for one file in the bounded run, at most, by a decoder that skips nothing
DECODED = ("h264", "hevc", "av1", "mpeg4", "vp9", "mjpeg", "mpeg2video")
# Files of decoded codecs that nobody can decode: no parameter sets, encrypted, or data that only looks like a video.
UNREADABLE = {
    "chemag+h265nal/media/pps_fdump_crash.202203.265",
    "chromeos+cros-codecs/src/codec/av1/test_data/av1-annexb.ivf.av1",
    "jcodec+jcodec/src/test/resources/h264/seq_wipe/test.264",
    "jcodec+jcodec/src/test/resources/metaedit/keyed.mp4",
    "membraneframework+membrane_h26x_plugin/test/fixtures/h264/input-10-no-pps-sps.h264",
    "mozilla+mp4parse-rust/mp4parse_capi/tests/short-cenc.mp4",
}
# Its colours are in a space that has no matrix.
ICTCP = "memorysafety+rav1d/tests/dav1d-test-data/multi-bit/argon/test10100_579_8614.obu"
# Damaged files: PyAV shows something, but its decoder complains. A row error is then as right as PyAV's pixels.
DAMAGED = {
    "Vanilagy+mediabunny/test/public/annex-b.mp4",
    "cisco+openh264/res/Error_I_P.264",
    "mozilla+mp4parse-rust/mp4parse_capi/tests/no_timescale.mp4",
}


def manifest() -> list[dict[str, str]]:
    path = CORPUS / "MANIFEST.tsv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t"))


def files(*, decoded: bool, readable: bool = True) -> list[str]:
    return [
        row["path"]
        for row in manifest()
        if (row["codec"] in DECODED) == decoded
        and row["path"] != ICTCP
        and (not decoded or (row["path"] not in UNREADABLE) == readable)
    ] or [""]


@dataclass
class Row:
    """What is reported of one file."""

    name: str
    graph: str
    frames: int
    compared: int = 0
    errors: int = 0
    fallbacks: int = 0
    unique: int = 0
    reconstructed: int = 0
    causes: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        cause = f" ({min(self.causes)})" if self.causes else ""
        return (
            f"{self.name[-48:]:48} {self.frames:5} frames {self.compared:6} compared {self.errors:4} errors "
            f"{self.fallbacks:4} fallbacks {self.reconstructed / max(1, self.unique):6.2f} pictures a frame, {self.graph}{cause}"
        )


@pytest.fixture(scope="module")
def report(add_summary_line: Callable[[str], None]) -> Iterator[list[Row]]:
    rows: list[Row] = []
    yield rows
    for row in rows:
        add_summary_line(f"corpus: {row}")


@pytest.fixture
def corpus_file(request: pytest.FixtureRequest) -> Path:
    if not request.param:
        pytest.skip(f"{CORPUS / 'MANIFEST.tsv'} is absent")
    return CORPUS / str(request.param)


def compare(decoder: VideoDecoder, oracle: Oracle, request: list[int], row: Row) -> None:
    """Every picture is the oracle's, or the frame is in a damaged file and its error says so."""
    sizes = {(oracle.frames[index].width, oracle.frames[index].height) for index in request}
    if len(sizes) > 1:  # VideoDecoder gives one array: one size at a time
        with pytest.raises(ShardFormatError, match="differ in size"):
            decoder.get_frames_at(request)
        for width, height in sizes:
            same = [i for i in request if (oracle.frames[i].width, oracle.frames[i].height) == (width, height)]
            compare(decoder, oracle, same, row)
        return
    try:
        batch = decoder.get_frames_at(request)
    except FrameDecodeError as error:
        if may_not_fail(oracle):
            raise AssertionError(f"{error} in {request}, of a frame that PyAV shows undamaged") from error
        row.errors += 1
        row.causes.add(str(error).rsplit(": ", 1)[-1])
        if len(request) > 1:  # whatever is not damaged must still come out right
            for index in set(request):
                compare(decoder, oracle, [index], row)
        return
    for position, index in enumerate(request):
        assert_same_picture(batch.data[position], oracle, index, f"as number {position} of {request}")
    row.compared += len(request)
    row.fallbacks += batch.stats.fallbacks
    row.unique += batch.stats.unique
    row.reconstructed += batch.stats.reconstructed


def may_not_fail(oracle: Oracle) -> bool:
    return oracle.path.relative_to(CORPUS).as_posix() not in DAMAGED


def requests_for(oracle: Oracle, rng: random.Random) -> list[list[int]]:
    """Each frame alone and the random sets, shuffled; of a large file as many as the budget allows."""
    count = len(oracle.frames)
    alone = [[index] for index in range(count)]
    sets = [random_request(rng, count) for _ in range(RANDOM_SETS)]
    affordable = BUDGET_PIXELS // max(1, count * oracle.frames[0].width * oracle.frames[0].height // 2)
    if not FULL and len(alone) + len(sets) > affordable:
        alone = [alone[0], alone[-1], *rng.sample(alone, min(count, max(6, affordable // 2)))]
        sets = sets[: max(4, affordable // 2)]
    requests = alone + sets
    rng.shuffle(requests)
    return requests


@pytest.mark.parametrize("corpus_file", files(decoded=True), indirect=True, ids=lambda name: Path(str(name)).name)
def test_real_file_gives_the_frames_of_a_full_decode(corpus_file: Path, report: list[Row]) -> None:
    oracle = decode_all(corpus_file)
    shard = _core.Shard(str(corpus_file))
    decoder = VideoDecoder(corpus_file)
    if may_not_fail(oracle):
        assert not any(frame.damaged for frame in oracle.frames)
        assert len(decoder) == len(oracle.frames)
    row = Row(
        corpus_file.name,
        "sparse" if shard.index.has_graph else f"not sparse: {shard.index.fallback_reason}",
        len(oracle.frames),
    )
    report.append(row)
    if len(decoder) == len(oracle.frames):
        for request in requests_for(oracle, random.Random(corpus_file.name)):
            compare(decoder, oracle, request, row)
    else:  # a damaged file, of which this decoder shows another number of frames: each must be one that PyAV shows
        right = {frame.digest for frame in oracle.frames}
        for index in range(len(decoder)):
            try:
                picture = decoder.get_frames_at([index]).data[0]
            except FrameDecodeError:
                row.errors += 1
            else:
                assert digest_of(picture) in right, f"frame {index} of {corpus_file.name} is one that PyAV never shows"
                row.compared += 1


@pytest.mark.parametrize(
    "corpus_file", files(decoded=True, readable=False), indirect=True, ids=lambda name: Path(str(name)).name
)
def test_file_that_pyav_cannot_decode_either_is_a_clean_error(corpus_file: Path) -> None:
    with contextlib.suppress(av.error.FFmpegError):
        assert list(decode_sequentially(corpus_file)) == []
    with pytest.raises(SparseVideoError, match=corpus_file.name.replace(".", r"\.")):
        VideoDecoder(corpus_file).get_frames_at([0])


@pytest.mark.parametrize(
    "corpus_file", [ICTCP] if manifest() else [""], indirect=True, ids=lambda name: Path(str(name)).name
)
def test_colours_that_pyav_does_not_convert_are_an_error_that_names_them(corpus_file: Path) -> None:
    frame = next(decode_sequentially(corpus_file))
    with pytest.raises(OSError, match="not supported"):
        frame.to_ndarray(format="rgb24")
    with pytest.raises(ShardFormatError, match="ictcp"):
        VideoDecoder(corpus_file).get_frames_at([0])


@pytest.mark.parametrize("corpus_file", files(decoded=False), indirect=True, ids=lambda name: Path(str(name)).name)
def test_file_of_another_codec_is_an_error_that_names_it(corpus_file: Path) -> None:
    known = {row["path"]: row["codec"] for row in manifest()}
    codec = known[corpus_file.relative_to(CORPUS).as_posix()]
    with pytest.raises(ShardFormatError) as raised:
        VideoDecoder(corpus_file)
    message = str(raised.value)
    assert corpus_file.name in message
    # PNG files are containers that are not read: those are named by what is read instead.
    assert codec in message or "mp4, mov, mkv" in message, message


@pytest.mark.parametrize(
    "corpus_file",
    [  # those of Argon's streams are not what dav1d's own program gives for these files
        row["path"]
        for row in manifest()
        if row["codec"] in DECODED and "_of_decoded_" in row["independent_oracle"] and "/argon/" not in row["path"]
    ]
    or [""],
    indirect=True,
    ids=lambda name: Path(str(name)).name,
)
def test_oracle_agrees_with_the_checksum_of_another_decoder(corpus_file: Path) -> None:
    """PyAV's planes have the published checksum, so our RGB (equal to PyAV's) comes from the right planes."""
    published = {row["path"]: row["independent_oracle"].rsplit(":", 1)[-1] for row in manifest()}
    wanted = published[corpus_file.relative_to(CORPUS).as_posix()]
    digest = hashlib.md5(usedforsecurity=False) if len(wanted) == 32 else hashlib.sha1(usedforsecurity=False)
    planes: list[bytes] = []
    for frame in decode_sequentially(corpus_file):
        planes = [*planes[-6:], visible_planes(frame)]
        digest.update(planes[-1])
    if digest.hexdigest() == wanted:
        return
    # OpenH264's test writes the last two frames of one file the other way round: the planes are right all the same.
    assert len(planes) <= 6, f"the planes of {corpus_file.name} do not have the checksum {wanted}"
    sums = {
        hashlib.sha1(b"".join(order), usedforsecurity=False).hexdigest() for order in itertools.permutations(planes)
    }
    assert wanted in sums


def test_robot_shards_give_the_frames_of_a_full_decode(
    robot_shard: Callable[[str, str], Path], report: list[Row]
) -> None:
    for dataset, camera in itertools.product(
        ("tiny_h264", "h264_noisy", "hevc_noisy", "av1_noisy"), ("top", "right_wrist")
    ):
        path = robot_shard(dataset, camera)
        if dataset != "tiny_h264" and not FULL:
            continue
        oracle, decoder = decode_all(path), VideoDecoder(path)
        row = Row(f"{dataset}/{camera}", "sparse", len(oracle.frames))
        report.append(row)
        rng = np.random.default_rng(5)
        for _ in range(20 if FULL else 5):
            compare(decoder, oracle, rng.integers(0, len(oracle.frames), 16).tolist(), row)
        assert row.fallbacks == 0
