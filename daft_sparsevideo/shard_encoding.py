# SPDX-License-Identifier: Apache-2.0
"""One shard written anew: structure, quality and the file itself."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from av.video.reformatter import VideoReformatter
from daft.io import IOConfig

from daft_sparsevideo.arguments import check_count, check_flag, check_number
from daft_sparsevideo.ddra import MAX_INTERVAL, Closure, ddra_frame_types, encoder_module
from daft_sparsevideo.errors import GateError, ShardFormatError, SparseVideoError
from daft_sparsevideo.frames import check_num_threads
from daft_sparsevideo.gate import check_written
from daft_sparsevideo.intervals import (
    QUALITY_FRAMES,
    QUICK_PRESET,
    SECTION_FRAMES,
    EpisodeStructure,
    IntervalChooser,
    half_size,
)
from daft_sparsevideo.open_shards import ShardSource
from daft_sparsevideo.output_file import local_file, require_another_file, whole_file
from daft_sparsevideo.quality import (
    MAX_CRF,
    MIN_CRF,
    Quality,
    measure_quality,
    planes_rgb,
    psnr_of,
    search_crf,
    source_match_db,
)
from daft_sparsevideo.resolve import NO_FRAME, FrameTimes
from daft_sparsevideo.source_video import Planes, SourceVideo, planes_of
from daft_sparsevideo.threads import thread_budget

Codec = Literal["hevc", "h264"]

DEFAULT_CRF = 20.0

_QUALITY_SAMPLES = 4  # stretches of a shard by which a crf is searched
_QUALITY_SAMPLE_BYTES = 256 << 20
_SAMPLE_TRIES, _SAMPLE_TOLERANCE_DB = 6, 0.02
_WHOLE_TRIES, _TOLERANCE_DB = 7, 0.1  # whole encodes until the PSNR that is asked for is reached; mostly one


@dataclass(frozen=True)
class Settings:
    """How shards are encoded; what the options of `reencode_ddra` say."""

    codec: Codec = "hevc"
    interval: int | Literal["auto"] = "auto"
    closure: Closure = 3
    closed: bool = False
    crf: float | None = None
    psnr_db: float | None = None
    match_source: bool = False
    preset: str = "medium"
    fragmented: bool = False
    num_threads: int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError or TypeError for options out of their range."""
        if self.codec not in get_args(Codec):
            raise ValueError(f"codec is {self.codec!r}; choose one of {', '.join(map(repr, get_args(Codec)))}")
        if self.interval != "auto":
            check_count("interval", self.interval, "frame")
            if self.interval > MAX_INTERVAL:
                raise ValueError(f"interval is {self.interval}; it must be at most {MAX_INTERVAL} frames, or 'auto'")
        if self.closure not in get_args(Closure):
            raise ValueError(f"closure is {self.closure!r}; it must be 3 or 4")
        for name, flag in (
            ("closed", self.closed),
            ("match_source", self.match_source),
            ("fragmented", self.fragmented),
        ):
            check_flag(name, flag)
        if sum((self.crf is not None, self.psnr_db is not None, self.match_source)) > 1:
            raise ValueError("give one of crf, psnr_db and match_source")
        for name, value, least, most in (
            ("crf", self.crf, MIN_CRF[self.codec], MAX_CRF),
            ("psnr_db", self.psnr_db, 0.0, 60.0),
        ):
            if value is not None and not least <= check_number(name, value) <= most:
                raise ValueError(f"{name} is {value}; it must lie in [{least:g}, {most:g}]")
        check_num_threads(self.num_threads)
        if not isinstance(self.preset, str):
            raise TypeError(f"preset must be the name of one, not {type(self.preset).__name__}")
        grey = [np.full((side, side), 128, np.uint8) for side in (64, 32, 32)]
        encoder = encoder_module()  # a picture that is encoded tells whether there is such a preset
        tiny = encoder.EncoderSettings(codec=self.codec, width=64, height=64, preset=self.preset, crf=DEFAULT_CRF)
        encoder.trial_encode(tiny, [grey], "I")

    def of_encoder(
        self, source: SourceVideo, crf: float, *, size: tuple[int, int] | None = None, preset: str | None = None
    ) -> Any:
        """What `_encoder` is told for a source; width and height are the source's, and the preset that of the user."""
        width, height = size or (source.width, source.height)
        return encoder_module().EncoderSettings(
            codec=self.codec,
            width=width,
            height=height,
            bit_depth=source.bit_depth,
            preset=preset or self.preset,
            crf=crf,
            reference_b=self.closure == 4,
            num_threads=self.num_threads or thread_budget(),
            average_fps=source.average_fps,
            sample_aspect_ratio=source.sample_aspect_ratio,
            **source.colour,
        )

    def types(self, num_frames: int, structure: EpisodeStructure) -> str:
        """The type of every frame of an episode."""
        return ddra_frame_types(
            num_frames, structure.sections, cuts=structure.cuts, closure=self.closure, closed=self.closed
        )


def reencode_shard(
    source: ShardSource,
    output: str,
    begins_s: Sequence[float] | None,
    settings: Settings,
    io_config: IOConfig | None = None,
) -> dict[str, Any]:
    """Write one shard anew, check it, and give it its name; returns the fields of the report.

    Args:
        source: What is read.
        output: Local path or URL.
        begins_s: Seconds where each episode begins, or None for one episode.
        settings: How it is encoded.
        io_config: How an output that is a URL is written.
    """
    started = time.monotonic()
    require_another_file(source.path, output)
    with local_file(source) as local, whole_file(output, io_config) as staged:
        video = SourceVideo.open(local, name=source.path)
        job = _Job(video, staged, episode_bounds(video, begins_s), settings)
        crf, quality = job.run()
        closures = check_written(
            staged, name=output, pts=video.pts, time_base=video.time_base, closure=settings.closure
        )
        return {
            "path": output,
            "frames": video.num_frames,
            "bytes_before": Path(local).stat().st_size,
            "bytes_after": Path(staged).stat().st_size,
            "psnr_db": quality.psnr_db,
            "worst_psnr_db": quality.worst_psnr_db,
            "y_psnr_db": quality.y_psnr_db,
            "worst_y_psnr_db": quality.worst_y_psnr_db,
            "closure_max": closures.largest,
            "closure_mean": closures.mean,
            "intervals": job.intervals(),
            "crf": crf,
            "seconds": time.monotonic() - started,
            "encoder": f"{encoder_module().encoder_version(settings.codec)} {settings.preset}",
            "error": None,
        }


def episode_bounds(video: SourceVideo, begins_s: Sequence[float] | None) -> list[tuple[int, int]]:
    """First frame of each episode, and the one after its last.

    Args:
        video: The shard.
        begins_s: Seconds where each begins, or None for one. What lies before the first is an episode, too.
    """
    begins: set[int] = {0}
    if begins_s is not None:
        times_s = np.asarray(begins_s, np.float64)
        times = FrameTimes.of(video.pts, np.full(video.num_frames, video.end_pts - video.pts[-1]), video.time_base)
        frames = times.resolve(0.0, times_s)
        if (frames == NO_FRAME).any():
            outside = float(times_s[frames == NO_FRAME][0])
            raise ShardFormatError(
                f"an episode begins at {outside:.6f} s of {video.name}: {times.explain_miss(outside)}", shard=video.name
            )
        begins.update(frames.tolist())
    return list(pairwise([*sorted(begins), video.num_frames]))


class FrameCounter:
    """Frames that this process has encoded, for whoever shows progress."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._frames = 0

    @property
    def frames(self) -> int:
        """How many so far."""
        return self._frames

    def add(self, frames: int) -> None:
        """Count."""
        with self._lock:
            self._frames += frames


encoded_frames = FrameCounter()


@dataclass
class _Job:
    """The encoding of one shard."""

    video: SourceVideo
    path: str  # of what is written
    episodes: list[tuple[int, int]]  # first frame, and the one after the last
    settings: Settings
    structures: list[EpisodeStructure] = field(default_factory=list)
    _samples: list[tuple[list[Planes], int]] = field(default_factory=list)  # with their intervals

    def run(self) -> tuple[float, Quality]:
        """Write the file; returns the crf, and the quality of what was written."""
        try:
            return self._run()
        except SparseVideoError:
            raise
        except (ValueError, RuntimeError) as error:  # of the encoder
            raise ShardFormatError(f"{self.video.name} cannot be encoded: {error}", shard=self.video.name) from error

    def _run(self) -> tuple[float, Quality]:
        settings, video = self.settings, self.video
        target_db = source_match_db(video) if settings.match_source else settings.psnr_db
        crf = DEFAULT_CRF if settings.crf is None else settings.crf
        self._choose_structures(crf, keep_samples=target_db is not None)
        if target_db is None:
            self._encode(crf)
            return crf, self._measure()
        min_crf = MIN_CRF[settings.codec]
        crf = search_crf(
            self._sample_psnr_db,
            target_db,
            crf,
            min_crf=min_crf,
            tries=_SAMPLE_TRIES,
            tolerance_db=_SAMPLE_TOLERANCE_DB,
        )
        self._samples.clear()
        written: dict[float, Quality] = {}

        def psnr_at(crf: float) -> float:
            encoded_frames.add(-video.num_frames if written else 0)
            self._encode(crf)
            written[crf] = self._measure()
            return written[crf].psnr_db

        crf = search_crf(psnr_at, target_db, crf, min_crf=min_crf, tries=_WHOLE_TRIES, tolerance_db=_TOLERANCE_DB)
        if crf != next(reversed(written)):
            psnr_at(crf)
        if written[crf].psnr_db < target_db - _TOLERANCE_DB:
            best = max(quality.psnr_db for quality in written.values())
            raise GateError(
                f"{video.name}: a PSNR of {target_db:.2f} dB is not reached, only {best:.2f} dB", shard=video.name
            )
        return crf, written[crf]

    def intervals(self) -> list[dict[str, int]]:
        """From which frame of the shard on each interval is used."""
        return [
            {"frame": first + frame, "interval": interval}
            for (first, _), structure in zip(self.episodes, self.structures, strict=True)
            for frame, interval in structure.sections
        ]

    def _choose_structures(self, crf: float, *, keep_samples: bool) -> None:
        settings, video = self.settings, self.video
        most = min(_QUALITY_SAMPLES, _QUALITY_SAMPLE_BYTES // (video.width * video.height * 2 * QUALITY_FRAMES))
        every = max(1, video.num_frames // (SECTION_FRAMES * max(1, most)))
        seen = 0

        def encode(frames: list[Planes], types: str, *, crf_step: float) -> tuple[Any, Any]:
            at = max(MIN_CRF[settings.codec], crf + crf_step)
            size = half_size(video.width, video.height)
            quick = settings.of_encoder(video, at, size=size, preset=QUICK_PRESET[settings.codec])
            found: tuple[Any, Any] = encoder_module().trial_encode(quick, frames, types)
            return found

        def keep(sample: list[Planes], interval: int) -> None:
            nonlocal seen
            if keep_samples and seen % every == 0 and len(self._samples) < max(1, most):
                self._samples.append((sample, interval))
            seen += 1

        fixed = None if settings.interval == "auto" else settings.interval
        if fixed is not None and not keep_samples:
            self.structures = [EpisodeStructure(((0, fixed),))] * len(self.episodes)
            return
        chooser = IntervalChooser(encode, settings.codec, fixed, keep_samples)
        frames = video.frames()
        self.structures = [chooser.choose(frames, stop - first, keep) for first, stop in self.episodes]
        _exhaust(frames)

    def _sample_psnr_db(self, crf: float) -> float:
        """The mean RGB PSNR of the samples when they are encoded as the shard will be."""
        video = self.video
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "sample.mp4")
            writer = encoder_module().ShardWriter(path, self.settings.of_encoder(video, crf), time_base=(1, 30))
            frames: list[Planes] = []
            for sample, interval in self._samples:
                pts = np.arange(len(frames), len(frames) + len(sample), dtype=np.int64)
                types = self.settings.types(len(sample), EpisodeStructure(((0, interval),)))
                writer.encode_episode(sample, pts, types)
                frames += sample
            writer.close()
            rgb, decoded_rgb = VideoReformatter(), VideoReformatter()
            decoded = SourceVideo.open(path).frames()
            found = [
                psnr_of(planes_rgb(one, video, rgb), planes_rgb(planes_of(other), video, decoded_rgb), 255)
                for one, other in zip(frames, decoded, strict=True)
            ]
        return float(np.mean(found))

    def _encode(self, crf: float) -> None:
        video = self.video
        writer = None
        try:
            writer = encoder_module().ShardWriter(
                self.path,
                self.settings.of_encoder(video, crf),
                time_base=video.time_base,
                rotation=video.rotation,
                fragmented=self.settings.fragmented,
            )
            frames = video.frames()
            for (first, stop), structure in zip(self.episodes, self.structures, strict=True):
                end_pts = int(video.pts[stop]) if stop < video.num_frames else video.end_pts
                types = self.settings.types(stop - first, structure)
                writer.encode_episode(_counted(frames, stop - first), video.pts[first:stop], types, end_pts=end_pts)
            _exhaust(frames)
            writer.close()
        finally:
            del writer  # which deletes an unfinished file: now, and not when the last one forgets the error

    def _measure(self) -> Quality:
        return measure_quality(self.video, SourceVideo.open(self.path))


def _counted(frames: Iterator[Any], count: int) -> Iterator[Planes]:
    for frame in islice(frames, count):
        yield planes_of(frame)
        encoded_frames.add(1)


def _exhaust(frames: Iterator[Any]) -> None:
    """Let a source tell whether it ends where it should."""
    for _ in frames:
        pass
