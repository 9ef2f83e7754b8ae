# SPDX-License-Identifier: Apache-2.0
"""`reencode_ddra`: shards are written anew so that every frame is at most two anchors away."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import daft
import pyarrow as pa
from daft import DataType, Expression, Series
from daft.io import IOConfig

from daft_sparsevideo.arguments import ShardArgument, check_number, check_on_error, shard_column
from daft_sparsevideo.batch import OnError, shard_sources
from daft_sparsevideo.ddra import Closure
from daft_sparsevideo.errors import SparseVideoError
from daft_sparsevideo.shard_encoding import Codec, Settings, reencode_shard

REPORT_TYPE = pa.struct(
    [
        ("path", pa.string()),
        ("frames", pa.int64()),
        ("bytes_before", pa.int64()),
        ("bytes_after", pa.int64()),
        ("psnr_db", pa.float64()),
        ("worst_psnr_db", pa.float64()),
        ("y_psnr_db", pa.float64()),
        ("worst_y_psnr_db", pa.float64()),
        ("closure_max", pa.int64()),
        ("closure_mean", pa.float64()),
        ("intervals", pa.list_(pa.struct([("frame", pa.int64()), ("interval", pa.int64())]))),
        ("crf", pa.float64()),
        ("seconds", pa.float64()),
        ("encoder", pa.string()),
        ("error", pa.string()),
    ]
)


def reencode_ddra(
    shard: ShardArgument,
    *,
    output: Expression | str | os.PathLike[str],
    codec: Codec = "hevc",
    interval: int | Literal["auto"] = "auto",
    closure: Closure = 3,
    closed: bool = False,
    crf: float | None = None,
    psnr_db: float | None = None,
    match_source: bool = False,
    episodes: Expression | Sequence[float] | None = None,
    preset: str = "medium",
    fragmented: bool = False,
    num_threads: int | None = None,
    io_config: IOConfig | None = None,
    on_error: OnError = "raise",
) -> Expression:
    """Each row's shard, written anew as an MP4 file in which any frame costs at most `closure` pictures.

    Frames, their times and their colours stay; audio and other streams are left out. What is written is read back:
    it gets its name only when the number of frames, every time, every closure (by the decoder's own graph) and the
    quality have been checked. An output that exists is replaced then, and not before.

    Args:
        shard: As for `decode_frames`: H.264, HEVC, AV1 or whatever PyAV decodes, 4:2:0 in 8 or 10 bits.
        output: Path or URL of the new file, a column of them or one for a single row. Folders are made.
        codec: "hevc" (default) or "h264".
        interval: Frames from one anchor to the next, 1 to 64. "auto" (default) chooses from 4, 8, 16 and 32 for
            every stretch of about 256 frames, by trial encodes, and makes the first frame after a cut an anchor.
        closure: 3 (default), or 4: a smaller file.
        closed: Every interval starts anew: larger, but plain players can seek to every anchor.
        crf: Rate factor of the encoder, 0 to 51 (for H.264 1 to 51); smaller is better. 20 where no other quality is
            asked for.
        psnr_db: The mean RGB PSNR that is to be reached, against the shard's frames; the crf is searched until it is
            within 0.1 dB, or as little above as the encoder's steps allow.
        match_source: Reach the PSNR that encoding the shard once more with its own codec at its own size would.
        episodes: Seconds in the shard where each episode begins; a column of lists, or one list. None (default):
            it is all one. Frames of different episodes never depend on each other.
        preset: Of x265 or x264, from "ultrafast" to "placebo".
        fragmented: Write a fragment for each episode, which players can begin with before the file is complete.
        num_threads: Threads of the encoder for one shard. None (default): as many as the thread budget has.
        io_config: How outputs that are URLs are written.
        on_error: "raise" (default) ends the query with one exception; "null" gives a struct whose `error` says
            what went wrong, all else but `path` being null, and goes on.

    Returns:
        Expression "reencoded" of a struct: `path`, `frames`, `bytes_before`, `bytes_after`, `psnr_db` and
        `worst_psnr_db` (RGB, dB, mean over the frames and of the worst one), `y_psnr_db`, `worst_y_psnr_db` (luma),
        `closure_max`, `closure_mean` (pictures), `intervals` (list of `frame`, `interval`: from which frame of the
        shard on), `crf`, `seconds`, `encoder`, `error`. Null inputs give null.

    Raises:
        ValueError: An option is out of its range.
        TypeError: An argument is of the wrong type.
        ImportError: The encoders were left out of this installation.

    Example:
        >>> import daft
        >>> from daft import col
        >>> rows = daft.from_pydict({"shard": [video_path], "output": [f"{output_folder}/new.mp4"]})
        >>> report = rows.select(reencode_ddra(col("shard"), output=col("output"), interval=8))
        >>> row = report.to_pydict()["reencoded"][0]
        >>> row["frames"], row["closure_max"]
        (90, 3)
    """
    settings = Settings(codec, interval, closure, closed, crf, psnr_db, match_source, preset, fragmented, num_threads)
    check_on_error(on_error)

    @daft.func.batch(return_dtype=DataType.from_arrow_type(REPORT_TYPE), batch_size=1, use_process=False, max_retries=0)
    def reencode_batch(shard: Series, output: Series, episodes: Series) -> pa.Array:
        return _reencode_rows(shard, output, episodes, settings, io_config=io_config, on_error=on_error)

    report: Expression = reencode_batch(shard_column(shard), _output_column(output), _episode_column(episodes))
    return report.alias("reencoded")


def _output_column(output: Expression | str | os.PathLike[str]) -> Expression:
    if isinstance(output, Expression):
        return output
    if isinstance(output, (str, os.PathLike)):
        return daft.lit(os.fspath(output))
    raise TypeError(f"output must be a column, a path or a URL, not {type(output).__name__}")


def _episode_column(episodes: Expression | Sequence[float] | None) -> Expression:
    if episodes is None or isinstance(episodes, Expression):
        return daft.lit(None) if episodes is None else episodes
    if isinstance(episodes, str) or not isinstance(episodes, Iterable):
        raise TypeError(f"episodes must be a column, or a list of seconds, not {type(episodes).__name__}")
    return daft.lit([check_number("each of episodes", begin_s) for begin_s in episodes])


def _reencode_rows(
    shard: Series,
    output: Series,
    episodes: Series,
    settings: Settings,
    *,
    io_config: IOConfig | None,
    on_error: OnError,
) -> pa.Array:
    """What the Daft function calls on every worker."""
    _check_types(output, episodes)
    reports: list[dict[str, Any] | None] = []
    rows = zip(shard_sources(shard), output.to_pylist(), episodes.to_pylist(), strict=True)
    for source, path, begins_s in rows:
        if source is None or path is None:
            reports.append(None)
            continue
        try:
            report = reencode_shard(source, path, begins_s, settings, io_config)
        except (SparseVideoError, OSError) as error:  # OSError: no room for temporary files
            if on_error == "raise":
                raise
            report = {"path": path, "error": f"{type(error).__name__}: {error}"}
        reports.append(report)
    return pa.array(reports, REPORT_TYPE)


def _check_types(output: Series, episodes: Series) -> None:
    """Raise TypeError for columns that no row of can be used."""
    kind = output.datatype()
    if not (kind.is_string() or kind.is_null()):
        raise TypeError(f"output must be paths or URLs, but column {output.name()!r} is {kind}")
    kind = episodes.datatype()
    is_list = kind.is_list() or kind.is_fixed_size_list()
    if not (kind.is_null() or (is_list and (kind.dtype.is_numeric() or kind.dtype.is_null()))):
        raise TypeError(f"episodes must be lists of seconds, but column {episodes.name()!r} is {kind}")
