# SPDX-License-Identifier: Apache-2.0
"""A dataset whose videos were written anew, and what random access to it costs."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from statistics import fmean
from typing import TYPE_CHECKING, Any

from benchmarks.clip_encoders import reencoded
from benchmarks.cpu_clock import Cost, interleaved, measured
from benchmarks.encode_speed import timed_choices
from benchmarks.frame_readers import PROJECT, PYAV, TORCHCODEC_APPROXIMATE, TORCHCODEC_EXACT
from benchmarks.reader_process import Digests, ReaderProcess
from benchmarks.request_patterns import batches

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from benchmarks.robot_dataset import RobotDataset

NATIVE, DDRA, DDRA_INDEXED, AV1 = "native", "DDRA HEVC", "DDRA HEVC with index files", "AV1"

CONTESTANTS: dict[str, tuple[str, ...]] = {
    DDRA_INDEXED: (PROJECT,),
    DDRA: (PROJECT, TORCHCODEC_EXACT, PYAV),
    NATIVE: (PROJECT, TORCHCODEC_EXACT),
    AV1: (TORCHCODEC_EXACT, TORCHCODEC_APPROXIMATE, PYAV),
}
"""Who reads which form of the videos."""

Rounds = dict[str, list[Cost]]


@dataclass(frozen=True)
class Reencoded:
    """A dataset with other videos in the places of its own, and the reports of those."""

    dataset: RobotDataset
    reports: dict[str, dict[str, Any]]
    """By shard, those of `reencode_ddra`, with `cpu_s` and `choice_cpu_s` of the whole and of choosing intervals."""


def reencode_dataset(dataset: RobotDataset, folder: Path, **settings: Any) -> Reencoded:
    """Write all videos of a dataset anew, on one thread and one after the other.

    Args:
        dataset: The dataset.
        folder: Where the videos go.
        settings: Options of `reencode_ddra`.

    Returns:
        The new videos.

    """
    reports, places = {}, {}
    for number, shard in enumerate(dataset.shards):
        begins_s = [
            episode.first_frames[camera] / dataset.fps
            for episode in dataset.episodes
            for camera in dataset.cameras
            if episode.shards[camera] == shard
        ]
        places[shard] = folder / f"{number}.mp4"
        with timed_choices() as choice:
            work = partial(reencoded, shard, places[shard], episodes=sorted(begins_s), **settings)
            report, cost = measured(work)
        name = str(shard.relative_to(dataset.root))
        reports[name] = {**report, "cpu_s": cost.cpu_s, "choice_cpu_s": choice.cpu_s}
    return Reencoded(_moved(dataset, places), reports)


def with_index_files(dataset: RobotDataset, folder: Path) -> RobotDataset:
    """Link the videos of a dataset into a folder, and write an index file beside each."""
    places = {shard: folder / shard.name for shard in dataset.shards}
    for shard, place in places.items():
        place.hardlink_to(shard)
        import_module("daft_sparsevideo").write_index(place)
    return _moved(dataset, places)


def _moved(dataset: RobotDataset, places: Mapping[Path, Path]) -> RobotDataset:
    episodes = (
        replace(episode, shards={camera: places[shard] for camera, shard in episode.shards.items()})
        for episode in dataset.episodes
    )
    return replace(dataset, episodes=tuple(episodes))


def pictures_alone(dataset: RobotDataset) -> list[int]:
    """Tell how many pictures each frame of each shard takes when nothing else is asked for."""
    decoders = [import_module("daft_sparsevideo").VideoDecoder(str(shard)) for shard in dataset.shards]
    return [decoder.plan_at([frame]).reconstructed for decoder in decoders for frame in range(len(decoder))]


def pictures_of_random_frames(dataset: RobotDataset, draws: int, *, seed: int) -> float:
    """Tell how many pictures a frame takes when 16 random ones of an episode are asked together: the mean."""
    decoders = {shard: import_module("daft_sparsevideo").VideoDecoder(str(shard)) for shard in dataset.shards}
    return fmean(
        decoders[shard].plan_at(frames).decode_amplification
        for batch in batches(dataset, "random", draws, seed=seed)
        for shard, frames in batch.shard_frames()
    )


def measure_access(
    forms: Mapping[str, RobotDataset], *, num_batches: int, num_threads: int, seed: int
) -> tuple[Rounds, Counter[str]]:
    """Ask every form of the videos for the same random frames, cold, by turns.

    Args:
        forms: The datasets, by the keys of `CONTESTANTS`; of the same episodes.
        num_batches: How many: each is 16 random frames of one episode from every camera.
        num_threads: Decoder threads of one reader.
        seed: Fixes which frames are asked.

    Returns:
        The costs of every "reader, form" that could read it, and how many frames were not those that PyAV sees in the DDRA videos.

    """
    differing: Counter[str] = Counter()
    exact = {f"{reader}, {form}" for form in (DDRA, DDRA_INDEXED) for reader in CONTESTANTS[form]}

    def compare(_: int, results: Mapping[str, Digests]) -> None:
        right = results[f"{PYAV}, {DDRA}"]
        for name in sorted(exact & results.keys()):
            differing[name] += sum(one != other for one, other in zip(results[name], right, strict=True))

    asked = {form: batches(dataset, "random", num_batches, seed=seed) for form, dataset in forms.items()}
    with ExitStack() as processes:
        contestants: dict[str, Callable[[int], tuple[Digests, Cost]]] = {}
        for form, dataset in forms.items():
            for name in CONTESTANTS[form]:
                reader = processes.enter_context(ReaderProcess(name, fps=dataset.fps, num_threads=num_threads))
                failure = reader.failure(dataset.shards[0])
                if failure is not None:
                    print(f"left out: {name}, {form} ({failure})")
                    continue

                def cold(turn: int, reader: ReaderProcess = reader, form: str = form) -> tuple[Digests, Cost]:
                    return reader.cold(asked[form][turn])

                contestants[f"{name}, {form}"] = cold
        rounds = interleaved(contestants, range(num_batches), check=compare)
    return rounds, differing
