# SPDX-License-Identifier: Apache-2.0
"""What the automatic choice of intervals loses: bytes at equal PSNR beside every fixed interval."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks.clip_encoders import write_types
from benchmarks.clips import Clip, Coded, measure_coded, read_clip
from benchmarks.rate_curve import trace_curve

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.robot_dataset import RobotDataset

INTERVALS = (4, 8, 16, 32)
CRF_STEP = 1.5


@dataclass(frozen=True)
class EpisodeCalibration:
    """KiB of one episode of one camera, at the PSNR that the chosen structure gives."""

    episode: int
    camera: str
    chosen: Sequence[tuple[int, int]]
    chosen_kib: float
    fixed_kib: dict[int, float]

    @property
    def loss_percent(self) -> float:
        """By how much the chosen structure is larger than the best fixed interval."""
        return 100 * (self.chosen_kib / min(self.fixed_kib.values()) - 1)


def calibrate(
    dataset: RobotDataset, reports: dict[str, dict[str, Any]], folder: Path, *, crf: float
) -> list[EpisodeCalibration]:
    """Encode every episode with every interval, in full size and at the preset of `reencode_ddra`.

    Args:
        dataset: The source.
        reports: Of `reencode_ddra` on its shards, by their paths in the dataset.
        folder: Where files are written.
        crf: The rate factor at which the intervals were chosen.

    Returns:
        One table row an episode and camera.

    """
    rows = []
    for camera in dataset.cameras:
        for episode in dataset.episodes:
            first, shard = episode.first_frames[camera], episode.shards[camera]
            clip = read_clip(shard, first, first + episode.num_frames)
            report = reports[str(shard.relative_to(dataset.root))]
            chosen = _sections(report["intervals"], first, episode.num_frames)
            coded = _coded(clip, folder, chosen, crf)
            fixed_kib = {}
            for interval in INTERVALS:
                measure = partial(_coded, clip, folder, [(0, interval)])
                curve = trace_curve(measure, [coded.psnr_db], first_crf=crf - CRF_STEP / 2, step=CRF_STEP)
                fixed_kib[interval] = curve.bytes_at(coded.psnr_db) / 1024
            rows.append(EpisodeCalibration(episode.index, camera, chosen, coded.size_bytes / 1024, fixed_kib))
    return rows


def _sections(intervals: Sequence[dict[str, int]], first: int, num_frames: int) -> list[tuple[int, int]]:
    return [
        (section["frame"] - first, section["interval"])
        for section in intervals
        if first <= section["frame"] < first + num_frames
    ]


def _coded(clip: Clip, folder: Path, sections: Sequence[tuple[int, int]], crf: float) -> Coded:
    output = folder / "calibration.mp4"
    types = import_module("daft_sparsevideo.ddra").ddra_frame_types(len(clip.frames), sections)
    write_types(clip, output, crf, types)
    return measure_coded(output, clip)
