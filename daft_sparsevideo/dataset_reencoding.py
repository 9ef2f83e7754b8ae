# SPDX-License-Identifier: Apache-2.0
"""A LeRobot dataset written anew: its videos by `reencode_ddra`, everything else copied, `info.json` at the very end.

What is done is noted in `meta/sparsevideo/reencoded.jsonl`, a line for each video, so a run that was ended goes on.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import daft
from daft import DataFrame, col
from daft.functions import video_file
from tqdm import tqdm

from daft_sparsevideo.batch import OnError
from daft_sparsevideo.dataset_index import write_dataset_index
from daft_sparsevideo.dataset_layout import LeRobotDataset
from daft_sparsevideo.dataset_shards import DatasetShard, dataset_shards
from daft_sparsevideo.ddra import encoder_module
from daft_sparsevideo.index_places import DATASET_FOLDER
from daft_sparsevideo.output_file import PARTIAL, is_url, whole_file
from daft_sparsevideo.reencode import REPORT_TYPE, reencode_ddra
from daft_sparsevideo.shard_encoding import DEFAULT_CRF, Settings, encoded_frames
from daft_sparsevideo.threads import thread_budget

INFO_KEY = "sparsevideo.reencoded"
"""Where `info.json` says, in what it tells of a camera, how its videos were encoded."""

_STATE, _DONE = f"{DATASET_FOLDER}/reencode.json", f"{DATASET_FOLDER}/reencoded.jsonl"
_INFO = "meta/info.json"
_DAFT_BAR = "DAFT_PROGRESS_BAR"
_NOT_COPIED = (".cache", ".git")  # what a download of the hub leaves beside the dataset
_STALE_INFO = ("g", "crf", "preset", "fast_decode", "video_backend", "extra_options")  # after "video."


@dataclass(frozen=True)
class DatasetReencoding:
    """What is read, what is written, and how."""

    source: LeRobotDataset
    target: Path
    cameras: tuple[str, ...]
    settings: Settings
    on_error: OnError
    progress: bool | None

    def run(self) -> DataFrame:
        """Do what is not done yet; returns a row for each video."""
        self._check_places()
        with self._own_target():
            shards = dataset_shards(self.source, self.cameras)
            self._copy_others({shard.name for shard in shards})
            reports = self._finished(shards)
            with self._bar(shards, reports) as count:
                for report in self._encode([shard for shard in shards if shard.name not in reports]):
                    reports[report["shard"]] = report
                    if report["error"] is None:
                        self._note(report)
                        count(sum(report["frames"] for report in reports.values() if report["error"] is None))
            rows = [reports[shard.name] for shard in shards if shard.name in reports]
            if len(rows) == len(shards) and all(row["error"] is None for row in rows):
                self._complete()
        columns = ["camera", "shard", *(field.name for field in REPORT_TYPE)]
        return daft.from_pydict({name: [row[name] for row in rows] for name in columns})

    def _check_places(self) -> None:
        target = self.target.resolve()
        if "://" not in self.source.root:
            source = Path(self.source.root).resolve()
            if target == source or target in source.parents or source in target.parents:
                raise ValueError(f"{self.target} and the source {source} must be two folders, neither in the other")
        if self.target.exists() and not self.target.is_dir():
            raise NotADirectoryError(f"{self.target} is no folder")
        state = self.target / _STATE
        if not state.exists() and self.target.is_dir() and any(self.target.iterdir()):
            raise FileExistsError(f"{self.target} is not empty, and not from an earlier run: give a new folder")

    @contextmanager
    def _own_target(self) -> Iterator[None]:
        """Say what is done here, or refuse what is another's or was begun otherwise."""
        state = self.target / _STATE
        state.parent.mkdir(parents=True, exist_ok=True)
        wanted = json.dumps({"source": self.source.root, "cameras": self.cameras, **self._told_settings()}, indent=2)
        with state.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FileExistsError(f"another run is writing {self.target}") from None
            file.seek(0)
            begun = file.read()
            if begun and begun != wanted:
                raise FileExistsError(
                    f"{self.target} was begun with another source or settings, which {state} holds: "
                    "give the same, or a new folder"
                )
            if not begun:
                file.write(wanted)
                file.flush()
            yield

    def _told_settings(self) -> dict[str, Any]:
        """The settings that matter for what is written."""
        settings = asdict(self.settings)
        del settings["num_threads"]
        if not (self.settings.match_source or self.settings.psnr_db):
            settings["crf"] = DEFAULT_CRF if self.settings.crf is None else self.settings.crf
        return settings

    def _copy_others(self, videos: set[str]) -> None:
        """Copy what is not encoded anew, and not there yet; of videos nothing half written stays."""
        for name, size_bytes in _files(self.source):
            parts = Path(name).parts
            if name in videos or name == _INFO or parts[0] in _NOT_COPIED or name.startswith(f"{DATASET_FOLDER}/"):
                continue
            path = self.target / name
            if not path.exists() or path.stat().st_size != size_bytes:
                with (
                    daft.open_file(f"{self.source.root}/{name}", mode="rb", io_config=self.source.io_config) as file,
                    whole_file(str(path), None) as staged,
                    Path(staged).open("wb") as copy,
                ):
                    shutil.copyfileobj(file, copy, 16 << 20)
        for path in self.target.rglob(f"*{PARTIAL}"):
            path.unlink()

    def _finished(self, shards: Sequence[DatasetShard]) -> dict[str, dict[str, Any]]:
        """Reports of videos that an earlier run has written, and that are as it left them."""
        done = self.target / _DONE
        reports = {}
        for line in done.read_text().splitlines() if done.exists() else ():
            try:
                report = json.loads(line)
            except ValueError:  # the run was ended while it wrote the line
                continue
            path = self.target / report["shard"]
            if path.exists() and path.stat().st_size == report["bytes_after"]:
                reports[report["shard"]] = report
        names = {shard.name for shard in shards}
        return {name: report for name, report in reports.items() if name in names}

    def _note(self, report: dict[str, Any]) -> None:
        with (self.target / _DONE).open("a") as file:
            file.write(json.dumps(report) + "\n")

    def _encode(self, shards: Sequence[DatasetShard]) -> Iterator[dict[str, Any]]:
        """Encode videos by a Daft query, and give the report of each as it is done."""
        if not shards:
            return
        rows = daft.from_pydict(
            {
                "camera": [shard.camera for shard in shards],
                "shard": [shard.name for shard in shards],
                "path": [shard.path for shard in shards],
                "output": [str(self.target / shard.name) for shard in shards],
                "episodes": [shard.begins_s for shard in shards],
            }
        )
        if daft.get_or_infer_runner_type() != "native":  # whose one process has all threads anyway
            rows = rows.into_partitions(len(shards))
        options = asdict(self.settings)
        options["num_threads"] = self.settings.num_threads or max(1, thread_budget() // len(shards))
        video = video_file(col("path"), verify=False, io_config=self.source.io_config)
        report = reencode_ddra(video, output=col("output"), episodes=col("episodes"), on_error=self.on_error, **options)
        for row in rows.select("camera", "shard", report).iter_rows(results_buffer_size=1):
            yield {"camera": row["camera"], "shard": row["shard"], **row["reencoded"]}

    @contextmanager
    def _bar(self, shards: Sequence[DatasetShard], reports: dict[str, dict[str, Any]]) -> Iterator[Any]:
        """Show how many frames are done; gives what is told the number of those in whole videos."""
        total = sum(shard.num_frames for shard in shards)
        disable = None if self.progress is None else not self.progress  # None: where there is no terminal
        already, ended = sum(report["frames"] for report in reports.values()), threading.Event()
        begin, whole = encoded_frames.frames, already

        with tqdm(total=total, initial=already, unit="frame", disable=disable, desc=self.target.name) as bar:

            def show() -> None:
                here = already + encoded_frames.frames - begin  # workers of other processes count elsewhere
                bar.update(min(total, max(whole, here)) - bar.n)

            def watch() -> None:
                while not ended.wait(0.5):
                    show()

            def count(frames: int) -> None:
                nonlocal whole
                whole = frames

            if bar.disable:
                yield count
                return
            watcher = threading.Thread(target=watch, daemon=True)
            watcher.start()
            try:
                with _without_bar_of_daft():
                    yield count
            finally:
                ended.set()
                watcher.join()
                show()

    def _complete(self) -> None:
        """Write `info.json` and the index files: with them it is a dataset."""
        info = json.loads(json.dumps(self.source.info))
        for key in self.cameras:
            feature = info["features"][key]
            about = feature.setdefault("video_info" if "video_info" in feature else "info", {})
            for name in _STALE_INFO:
                about.pop(f"video.{name}", None)
            about["video.codec"] = self.settings.codec
            about["has_audio"] = False
            about[INFO_KEY] = self._told_settings() | {"encoder": encoder_module().encoder_version(self.settings.codec)}
        with whole_file(str(self.target / _INFO), None) as staged:
            Path(staged).write_text(json.dumps(info, indent=4))
        write_dataset_index(LeRobotDataset.open(self.target, None), None, cameras=self.cameras)


@contextmanager
def _without_bar_of_daft() -> Iterator[None]:
    """Two bars would write over each other; Daft's counts videos, not frames."""
    before = os.environ.get(_DAFT_BAR)
    os.environ[_DAFT_BAR] = "0"
    try:
        yield
    finally:
        del os.environ[_DAFT_BAR]
        if before is not None:
            os.environ[_DAFT_BAR] = before


def _files(source: LeRobotDataset) -> list[tuple[str, int]]:
    """Path in the dataset, and size in bytes, of all files of a dataset."""
    if is_url(source.root):
        listed = daft.from_glob_path(f"{source.root}/**", io_config=source.io_config).to_pydict()
        found = zip(listed["path"], listed["size"], strict=True)
        return [(path.removeprefix(source.root).lstrip("/"), size) for path, size in found]
    root = Path(source.root)
    return [(str(path.relative_to(root)), path.stat().st_size) for path in sorted(root.rglob("*")) if path.is_file()]
