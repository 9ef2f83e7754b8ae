# SPDX-License-Identifier: Apache-2.0
"""The command `sparsevideo`.

Exit codes: 0 all is well, 1 something was found or failed, 2 the command was given wrongly.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from daft_sparsevideo.errors import SparseVideoError

_EXAMPLES = {
    "index": "example: sparsevideo index pusht",
    "reencode": "example: sparsevideo reencode lerobot/pusht pusht-ddra --crf 18",
    "verify": "example: sparsevideo verify pusht-ddra",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code.

    >>> main(["verify", dataset_path])
    2 videos of 2 cameras, h264, 42 frames, at most 9 pictures a frame: no problems
    0
    """
    parsed = _parser().parse_args(arguments)
    os.environ.setdefault(
        "DAFT_PROGRESS_BAR", "0"
    )  # it tells of tables; where work takes long there is a bar of our own
    try:
        code: int = parsed.run(parsed)
    except (SparseVideoError, OSError, ValueError, TypeError, ImportError) as error:
        print(f"sparsevideo {parsed.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"sparsevideo {parsed.command}: ended; the same command goes on from here", file=sys.stderr)
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("sparsevideo", description="Random access to video datasets.")
    commands = parser.add_subparsers(dest="command", required=True)

    reencode = _command(commands, "reencode", "write a LeRobot dataset anew, any frame of which is a few pictures away")
    reencode.add_argument("src", metavar="SRC", help="folder, URL or Hugging Face name of the dataset")
    reencode.add_argument("dst", metavar="DST", help="folder for the new one; the same command goes on where it was")
    reencode.add_argument("--cameras", nargs="+", metavar="KEY", help="cameras to encode anew (default: all)")
    reencode.add_argument("--codec", choices=("hevc", "h264"), default="hevc", help="default: hevc")
    reencode.add_argument("--interval", type=_interval, default="auto", metavar="N|auto", help="frames between anchors")
    reencode.add_argument("--closure", type=int, choices=(3, 4), default=3, help="most pictures a frame takes")
    reencode.add_argument("--closed", action="store_true", help="plain players can seek to every anchor; larger")
    quality = reencode.add_mutually_exclusive_group()
    quality.add_argument("--crf", type=float, help="rate factor, 0 to 51 (default: 20)")
    quality.add_argument("--psnr", type=float, metavar="DB", help="mean RGB PSNR to reach in each video")
    quality.add_argument("--match-source", action="store_true", help="what encoding the source once more would keep")
    reencode.add_argument("--preset", default="medium", help="of the encoder (default: medium)")
    reencode.add_argument("--fragmented", action="store_true", help="a fragment for each episode")
    reencode.add_argument("--threads", type=int, metavar="N", help="threads for one video")
    reencode.set_defaults(run=_reencode)

    index = _command(commands, "index", "index videos once, so that opening them reads no pictures")
    index.add_argument("paths", nargs="+", metavar="DATASET|VIDEO", help="LeRobot datasets, or video files")
    index.add_argument("--output", metavar="PATH", help="folder for a dataset's index files, or the file for videos")
    index.set_defaults(run=_index)

    verify = _command(commands, "verify", "check the videos of a LeRobot dataset against its tables")
    verify.add_argument("dataset", metavar="DATASET", help="folder, URL or Hugging Face name")
    verify.add_argument("--closure", type=int, metavar="N", help="most pictures that a frame may take")
    verify.add_argument("--decode", action="store_true", help="decode every frame, too")
    verify.set_defaults(run=_verify)
    return parser


def _command(commands: Any, name: str, what: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=what, description=what, epilog=_EXAMPLES[name])
    command.add_argument("--json", action="store_true", help="print what was found as JSON")
    return command


def _interval(text: str) -> int | str:
    return text if text == "auto" else int(text)


def _reencode(given: argparse.Namespace) -> int:
    from daft_sparsevideo import lerobot

    report = lerobot.reencode(
        given.src,
        given.dst,
        cameras=given.cameras,
        codec=given.codec,
        interval=given.interval,
        closure=given.closure,
        closed=given.closed,
        crf=given.crf,
        psnr_db=given.psnr,
        match_source=given.match_source,
        preset=given.preset,
        fragmented=given.fragmented,
        num_threads=given.threads,
        on_error="null",
    )
    rows: list[dict[str, Any]] = report.to_pylist()
    failed = [row for row in rows if row["error"] is not None]
    if given.json:
        print(json.dumps(rows, indent=2))
        return 1 if failed else 0
    for row in rows:
        print(f"{row['shard']}: {_told(row) if row['error'] is None else row['error']}")
    if failed:
        print(f"{len(failed)} of {len(rows)} videos failed; the same command tries them again", file=sys.stderr)
        return 1
    before, after = (sum(row[name] for row in rows) for name in ("bytes_before", "bytes_after"))
    print(f"{given.dst}: {len(rows)} videos, {_megabytes(before)} before, {_megabytes(after)} now")
    return 0


def _told(row: dict[str, Any]) -> str:
    intervals = sorted({section["interval"] for section in row["intervals"]})
    return (
        f"{row['frames']} frames, {_megabytes(row['bytes_before'])} -> {_megabytes(row['bytes_after'])}, "
        f"PSNR {row['psnr_db']:.2f} dB (worst {row['worst_psnr_db']:.2f}), "
        f"at most {row['closure_max']} pictures a frame, interval {'/'.join(map(str, intervals))}"
    )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.2f} MB"


def _index(given: argparse.Namespace) -> int:
    from daft_sparsevideo import lerobot, write_index

    videos = [path for path in given.paths if Path(path).is_file()]
    datasets = [path for path in given.paths if path not in videos]
    if given.output is not None and (len(datasets) > 1 or (datasets and videos)):
        raise ValueError("--output: give one dataset, or videos")
    written = [] if given.output is None or not videos else [write_index(videos, given.output)]
    written = written or [write_index(video) for video in videos]
    for dataset in datasets:
        built = lerobot.build_index(dataset, output=given.output).to_pydict()
        written += [Path(path) for path in dict.fromkeys(built["index"])]
    rows = [{"index": str(path), "bytes": path.stat().st_size} for path in written]
    if given.json:
        print(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        print(f"{row['index']}: {row['bytes']} bytes")
    return 0


def _verify(given: argparse.Namespace) -> int:
    from daft_sparsevideo import lerobot

    found = lerobot.verify(given.dataset, closure=given.closure, decode=given.decode)
    rows: list[dict[str, Any]] = found.shards.to_pylist()
    if given.json:
        print(json.dumps({"problems": found.problems, "shards": rows}, indent=2))
        return 0 if found else 1
    for problem in found.problems:
        print(problem)
    codecs = "/".join(sorted({row["codec"] for row in rows if row["codec"]})) or "of no known codec"
    closures = [row["closure_max"] for row in rows if row["closure_max"] is not None]
    told = f", at most {max(closures)} pictures a frame" if closures else ""
    frames = sum(row["frames"] or 0 for row in rows)
    verdict = "no problems" if found else f"{len(found.problems)} problems"
    cameras = len({row["camera"] for row in rows})
    print(f"{len(rows)} videos of {cameras} cameras, {codecs}, {frames} frames{told}: {verdict}")
    return 0 if found else 1
