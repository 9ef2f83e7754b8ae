# SPDX-License-Identifier: Apache-2.0
"""Index files: what they hold is what a pass finds, and what is not right in them is never believed."""

from __future__ import annotations

import os
import random
import shutil
import struct
import warnings
from pathlib import Path

import daft
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from daft import col

from conftest import shared_folder
from daft_sparsevideo import VideoDecoder, _core, decode_frames, errors, index_files, lerobot, write_index
from daft_sparsevideo.index_places import SUFFIX, place_in
from daft_sparsevideo.index_rows import SCHEMA, VERSION, contents_of, table_of
from daft_sparsevideo.open_shards import open_shards
from lerobot_dataset import TOP, WRIST, Plan, write_dataset
from oracle import assert_same_picture, decode_all
from requests_of_frames import random_request
from small_clip import Clip, make_clip
from streams import STREAMS, Stream, stream_path

INDEX_COLUMNS = [name for name in dir(_core.StreamIndex) if name.startswith(("frame_", "picture_", "reference"))]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Clip:
    return make_clip(tmp_path_factory.mktemp("index") / "clip.mp4", frames=40)


@pytest.fixture
def clip(made: Clip, tmp_path: Path) -> Clip:
    """A copy with its index file beside it."""
    open_shards.clear()
    copy = Clip(Path(shutil.copy(made.path, tmp_path / "clip.mp4")), made.frames, made.fps)
    write_index(copy.path)
    return copy


def index_of(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)


def container_bytes(path: Path) -> int:
    """What an MP4 holds besides its pictures."""
    return path.stat().st_size - int(_core.Shard(str(path)).index.picture_size.sum())


def bytes_read(decoder: VideoDecoder) -> int:
    return decoder._opened.shard.bytes_read


def assert_frames_are_exact(clip: Clip, request: list[int] | None = None) -> VideoDecoder:
    open_shards.clear()
    decoder = VideoDecoder(clip.path)
    request = request or [31, 0, 17]
    np.testing.assert_array_equal(decoder.get_frames_at(request).data, [clip.frames[i] for i in request])
    return decoder


# ---- what is in them


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: str(stream.name))
def test_frames_with_an_index_file_equal_full_decode(stream: Stream, tmp_path: Path) -> None:
    path = stream_path(stream)
    by_pass = _core.Shard(str(path))
    file = write_index(path, tmp_path / "index.parquet")
    decoder = VideoDecoder(path, index=file)
    shard = decoder._opened.shard
    if by_pass.index.picture_position.min() >= 0 and path.suffix in (".mp4", ".mov"):
        assert shard.bytes_read == container_bytes(path)
    for name in INDEX_COLUMNS:
        np.testing.assert_array_equal(getattr(shard.index, name), getattr(by_pass.index, name), name)
    assert shard.index.fallback_reason == by_pass.index.fallback_reason
    oracle = decode_all(path)
    rng = random.Random(stream.name)
    for _ in range(3):
        request = random_request(rng, len(decoder))
        batch = decoder.get_frames_at(request)
        assert batch.stats.fallbacks == 0
        for position, index in enumerate(request):
            assert_same_picture(batch.data[position], oracle, index)
    assert shard.contents().facts == by_pass.contents().facts


def test_opening_and_decoding_read_nothing_but_the_container_and_the_closure(clip: Clip) -> None:
    decoder = VideoDecoder(clip.path)
    opened = container_bytes(clip.path)
    assert bytes_read(decoder) == opened
    batch = decoder.get_frames_at([20])
    assert bytes_read(decoder) - opened == batch.stats.bytes_read
    closure = decoder._opened.shard.plan(np.array([20])).closure
    assert batch.stats.bytes_read <= 1.1 * decoder._opened.shard.index.picture_size[closure].sum() + 4096
    index_of(clip.path).unlink()
    assert bytes_read(assert_frames_are_exact(clip)) > clip.path.stat().st_size


@pytest.mark.parametrize(("dataset", "percent"), [("h264_noisy", 0.5), ("hevc_noisy", 1.3), ("tiny_h264", 1.0)])
def test_files_are_small_beside_the_video(dataset: str, percent: float, tmp_path: Path) -> None:
    folder = shared_folder() / "robot" / dataset
    if not folder.exists():
        pytest.skip(f"{folder} is absent")
    lerobot.build_index(folder, output=tmp_path)
    media = sum(path.stat().st_size for path in folder.glob("videos/**/*.mp4"))
    assert 100 * sum(path.stat().st_size for path in tmp_path.iterdir()) / media < percent


def test_rows_can_be_read_by_anyone(clip: Clip) -> None:
    rows = daft.read_parquet(str(index_of(clip.path))).sort("frame").to_pydict()
    index = _core.Shard(str(clip.path)).index
    assert rows["frame"] == list(range(40))
    assert rows["pts"] == index.frame_pts.tolist()
    assert rows["size"] == index.picture_size[index.frame_picture].tolist()


# ---- where they are found


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_dataset_is_read_by_the_index_files_that_a_query_wrote(version: str, tmp_path: Path) -> None:
    videos = {TOP: [(0, 0), (0, 1)], WRIST: [(0, 0)] * 2}
    root = write_dataset(tmp_path / "dataset", Plan(version=version, videos=videos))  # type: ignore[arg-type]
    frames = lerobot.read(root, load_video_frames=True).sort("index")
    open_shards.clear()
    right = frames.to_pydict()
    built = lerobot.build_index(root).to_pydict()
    assert sorted(set(built["index"])) == [str(root / f"meta/sparsevideo/{key}.parquet") for key in (TOP, WRIST)]
    assert sum(frames for frames, key in zip(built["frames"], built["camera"], strict=True) if key == TOP) == 21
    copied = Path(shutil.copytree(root, tmp_path / "copy", copy_function=shutil.copyfile))  # all times of change differ
    open_shards.clear()
    got = lerobot.read(copied, load_video_frames=True).sort("index").to_pydict()
    for key in (TOP, WRIST):
        np.testing.assert_array_equal(got[key], right[key])
    opened = open_shards._shards
    assert {Path(source.path).relative_to(copied).as_posix() for source in opened} == set(built["shard"])
    for source, shard in opened.items():
        index = shard.shard.index
        assert shard.shard.bytes_read <= container_bytes(Path(source.path)) + int(index.picture_size.sum())


def test_cameras_are_told_apart_by_whole_names(tmp_path: Path) -> None:
    left = f"{TOP}_left"
    for template in (None, "clips/{video_key}-{chunk_index}-{file_index}.mp4"):
        root = write_dataset(
            tmp_path / str(template is None), Plan(videos={TOP: [(0, 0)] * 2, left: [(0, 0)] * 2}, video_path=template)
        )
        lerobot.build_index(root)
        for path in root.rglob("*.mp4"):
            assert bytes_read(VideoDecoder(path)) == container_bytes(path)
        (root / "meta/sparsevideo" / f"{left}.parquet").unlink()
        open_shards.clear()
        indexed = [bytes_read(VideoDecoder(path)) == container_bytes(path) for path in sorted(root.rglob("*.mp4"))]
        assert sorted(indexed) == [False, True], "the other camera is indexed by a pass, and nothing is said"


def test_shard_that_came_later_is_said_and_indexed(tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "dataset", Plan())
    lerobot.build_index(root)
    first = next(root.rglob("*.mp4"))
    later = Path(shutil.copy(first, first.with_name("file-001.mp4")))
    with pytest.warns(errors.IndexFileWarning, match=r"does not tell of .*file-001\.mp4"):
        assert len(VideoDecoder(later)) == 21


def test_one_file_tells_of_many_shards(made: Clip, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    other = make_clip(tmp_path / "b" / "other.mp4", frames=11)
    paths = [Path(shutil.copy(made.path, tmp_path / f"{i:02d}.mp4")) for i in range(5)]
    file = write_index([*paths, other.path], tmp_path / "all.parquet")
    for path in paths:
        assert len(VideoDecoder(path, index=file)) == 40
    assert len(VideoDecoder(other.path, index=file)) == 11
    assert place_in(str(file), str(other.path)).name == "b/other.mp4"
    with pytest.raises(errors.IndexFileError, match="does not tell of"):
        VideoDecoder(made.path, index=file)


def test_shards_of_many_row_groups_are_found(made: Clip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_files, "_ROWS_OF_A_GROUP", 60)
    paths = [Path(shutil.copy(made.path, tmp_path / f"{i}.mp4")) for i in range(5)]
    file = write_index(paths, tmp_path / "all.parquet")
    assert pq.read_metadata(file).num_row_groups == 3
    for path in paths:
        assert len(VideoDecoder(path, index=file)) == 40


def test_index_file_that_is_named_serves_bytes_and_file_objects(clip: Clip) -> None:
    with clip.path.open("rb") as file:
        for source in (clip.path.read_bytes(), file):
            decoder = VideoDecoder(source, index=index_of(clip.path))
            assert bytes_read(decoder) == container_bytes(clip.path)
            np.testing.assert_array_equal(decoder.get_frames_at([9]).data[0], clip.frames[9])


def test_nothing_is_left_where_a_shard_cannot_be_indexed(clip: Clip, tmp_path: Path) -> None:
    before = index_of(clip.path).read_bytes()
    (tmp_path / "broken.mp4").write_bytes(b"nonsense" * 99)
    for paths in ([clip.path, tmp_path / "broken.mp4"], [clip.path, tmp_path / "gone.mp4"]):
        with pytest.raises(errors.SparseVideoError):
            write_index(paths, index_of(clip.path))
    assert index_of(clip.path).read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.mp4", "clip.mp4", "clip.mp4" + SUFFIX]


# ---- what is not believed


def test_index_file_of_another_shard_is_said_and_not_believed(clip: Clip, tmp_path: Path) -> None:
    other = make_clip(tmp_path / "other.mp4", frames=30)
    write_index(other.path, tmp_path / "foreign.parquet")
    with pytest.raises(errors.IndexFileError, match=r"foreign\.parquet .* made of another file"):
        VideoDecoder(clip.path, index=tmp_path / "foreign.parquet")
    shutil.copy(other.path, clip.path)  # now the one beside it is stale
    with pytest.warns(errors.IndexFileWarning, match=r"clip\.mp4\.sparsevideo.*another file.*indexed anew"):
        assert_frames_are_exact(Clip(clip.path, other.frames, 30), [3, 29])


def test_other_version_is_said_and_not_believed(clip: Clip) -> None:
    file = index_of(clip.path)
    with pq.ParquetWriter(file.with_name("older"), SCHEMA, store_schema=False) as writer:
        writer.write_table(pq.read_table(file).cast(SCHEMA))
        writer.add_key_value_metadata({"sparsevideo.index": VERSION.replace("1.", "0.", 1)})
    file.with_name("older").replace(file)
    with pytest.warns(errors.IndexFileWarning, match=r"version '0\."):
        assert_frames_are_exact(clip)
    with pytest.raises(errors.IndexFileError, match=r"version '0\."):
        VideoDecoder(clip.path, index=file)


@pytest.mark.parametrize("what", ["timescale", "rotation", "any byte"])
def test_container_that_changed_in_place_is_indexed_anew(what: str, clip: Clip) -> None:
    data = bytearray(clip.path.read_bytes())
    if what == "timescale":  # ISO/IEC 14496-12, 8.4.2
        at = data.index(b"mdhd") + 16
        struct.pack_into(">I", data, at, struct.unpack_from(">I", data, at)[0] * 2)
    elif what == "rotation":
        struct.pack_into(">9i", data, data.index(b"tkhd") + 44, 0, 1 << 16, 0, -1 << 16, 0, 0, 0, 0, 1 << 30)
    else:
        data[data.index(b"mdia") - 40] ^= 1
    status = clip.path.stat()
    clip.path.write_bytes(data)
    os.utime(clip.path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.warns(errors.IndexFileWarning, match="of the same size"):
        decoder = assert_frames_are_exact(clip)
    assert decoder.metadata.rotation == (90 if what == "rotation" else 0)
    assert decoder.metadata.end_s == pytest.approx(40 / 30 / (2 if what == "timescale" else 1), rel=0.05)


def test_pictures_that_changed_in_place_are_errors_of_their_frames(clip: Clip) -> None:
    index = _core.Shard(str(clip.path)).index
    data = bytearray(clip.path.read_bytes())
    hurt = int(index.frame_picture[20])
    data[int(index.picture_position[hurt]) + int(index.picture_size[hurt]) // 2] ^= 0x10
    clip.path.write_bytes(data)
    open_shards.clear()
    decoder = VideoDecoder(clip.path)
    for frame in range(40):
        needs = hurt in decoder._opened.shard.plan(np.array([frame])).closure
        if needs:
            with pytest.raises(errors.ShardReadError, match="changed since it was indexed"):
                decoder.get_frames_at([frame])
        else:
            np.testing.assert_array_equal(decoder.get_frames_at([frame]).data[0], clip.frames[frame])
    assert hurt in decoder._opened.shard.plan(np.array([20])).closure


@pytest.mark.parametrize("container", ["ts", "mkv", "h264"])
def test_changes_in_other_containers_are_never_wrong_pixels(container: str, tmp_path: Path) -> None:
    stream = next(stream for stream in STREAMS if stream.container == container)
    path = Path(shutil.copy(stream_path(stream), tmp_path / f"clip.{container}"))
    write_index(path)
    whole, rng = path.read_bytes(), random.Random(container)
    changed_ways = set()
    for _ in range(60):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        open_shards.clear()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                batch = VideoDecoder(path).get_frames_at([3, 20])
            except errors.SparseVideoError:
                changed_ways.add("error")
                continue
        changed_ways.add("anew" if said else "as before")
        oracle = decode_all.__wrapped__(path if said else stream_path(stream))
        for position, frame in enumerate([3, 20]):
            assert_same_picture(batch.data[position], oracle, frame)
    assert "anew" in changed_ways or "error" in changed_ways


def test_damaged_index_file_is_noticed_wherever_it_is_hurt(clip: Clip) -> None:
    file = index_of(clip.path)
    whole, rng = file.read_bytes(), random.Random(5)
    wounds = [whole[:size] for size in range(0, len(whole), 61)]
    flips = range(0, len(whole), 7)
    wounds += [whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :] for at in flips]
    for _ in range(60):
        at, size = rng.randrange(len(whole)), rng.randrange(1, 64)
        wounds.append(whole[:at] + rng.choice([b"\0", b"\xff", rng.randbytes(1)]) * size + whole[at + size :])
        wounds.append(whole[:at] + whole[at + size :])
    right, noticed = _core.Shard(str(clip.path)).contents(), 0
    for wound in wounds:
        file.write_bytes(wound)
        index_files._cached.cache_clear()  # the clock of the file system may stand still meanwhile
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            decoder = assert_frames_are_exact(clip)
        assert {warning.category for warning in said} <= {errors.IndexFileWarning}
        noticed += bool(said)
        believed = decoder._opened.shard.contents()
        assert believed.facts == right.facts
        for name, column in believed.columns.items():
            np.testing.assert_array_equal(column, right.columns[name])
    assert noticed > 0.85 * len(wounds), "the rest hurts bytes of the footer that tell nothing"


def test_query_goes_on_with_a_damaged_index_file(clip: Clip) -> None:
    file = index_of(clip.path)
    file.write_bytes(file.read_bytes()[:-100])
    open_shards.clear()
    rows = daft.from_pydict({"seconds": [0.5, 1.0]})
    with pytest.warns(errors.IndexFileWarning, match="indexed anew"):
        got = rows.select(decode_frames(clip.name, 0.0, col("seconds"))).to_pydict()["frame"]
    np.testing.assert_array_equal(got, [clip.frames[15], clip.frames[30]])


def test_rows_that_were_changed_and_signed_anew_do_no_harm(clip: Clip) -> None:
    """Numbers of an attacker's choice: an error, or a shard that decodes or fails frame by frame."""
    contents = _core.Shard(str(clip.path)).contents()
    rng = np.random.default_rng(3)
    taken = refused = 0
    for name in contents.columns:
        for value in (-1, 0, 1, 2, 255, 256, 1 << 15, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63)):
            columns = {key: column.copy() for key, column in contents.columns.items()}
            column = columns[name]
            limits = np.iinfo(column.dtype)
            column[rng.integers(column.size)] = min(max(value, int(limits.min)), int(limits.max))
            try:
                shard = _core.Shard(str(clip.path), contents=_core.IndexContents(contents.facts, columns))
            except errors.IndexFileError:
                refused += 1
                continue
            taken += 1
            frames = np.arange(shard.index.num_frames)
            sizes = shard.index.frame_height.astype(np.int64) * shard.index.frame_width * 3
            if sizes.sum() > 1 << 26:
                continue
            out = np.zeros(int(sizes.sum()), np.uint8)
            shard.decode(frames, out, np.cumsum(sizes) - sizes)
    assert taken > 20
    assert refused > 50


def test_facts_of_another_type_or_value_are_refused(clip: Clip) -> None:
    contents = _core.Shard(str(clip.path)).contents()
    for name, fact in contents.facts.items():
        for wrong in (None, [1], {}, 1.5, -(1 << 62)):
            with pytest.raises(errors.IndexFileError):
                _core.Shard(
                    str(clip.path), contents=_core.IndexContents(contents.facts | {name: wrong}, contents.columns)
                )
        with pytest.raises(errors.IndexFileError):
            _core.IndexContents({key: value for key, value in contents.facts.items() if key != name}, contents.columns)
        assert fact == contents.facts[name]


def test_rows_of_another_shard_do_not_bear_this_ones_name(clip: Clip) -> None:
    rows = table_of(_core.Shard(str(clip.path)).contents(), "clip.mp4")
    contents_of(rows, "clip.mp4")
    with pytest.raises(errors.IndexFileError, match="digest"):
        contents_of(rows, "other.mp4")
    changed = rows.set_column(3, "gap", pa.array([2, *rows.column("gap").to_pylist()[1:]]))
    with pytest.raises(errors.IndexFileError, match="digest"):
        contents_of(changed, "clip.mp4")
