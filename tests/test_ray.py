# SPDX-License-Identifier: Apache-2.0
"""The same query on Daft's Ray runner: two workers of a local cluster, the same pixels, each shard on one worker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daft_sparsevideo import VideoDecoder
from encoding import encode
from lerobot_dataset import Plan, write_dataset
from own_process import run_alone
from scenes import draw_scene

pytest.importorskip("ray")

SHARDS = 6
ROWS = 120


def query_on_ray(shards: list[str], dataset: str, folder: str) -> dict[str, Any]:
    """Decode random rows on two workers; runs in a process of its own, which Ray may keep for itself."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    import daft
    import ray
    from daft import DataType, col
    from ray.cluster_utils import Cluster

    from daft_sparsevideo import decode_frames, lerobot, reencode_ddra

    @daft.func(return_dtype=DataType.string())
    def opened_here(frame: Any) -> str:
        from daft_sparsevideo.open_shards import open_shards

        del frame
        paths = sorted(source.path for source in open_shards._shards)
        return " ".join([str(os.getpid()), *paths])

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    try:
        daft.set_runner_ray(noop_if_initialized=True)
        chance = np.random.default_rng(4)
        rows = {
            "shard": [shards[i] for i in chance.integers(0, len(shards), ROWS)] + [shards[0], shards[0] + ".gone"],
            "seconds": [*(chance.integers(0, 60, ROWS) / 30).tolist(), 99.0, 0.0],
        }
        frame = decode_frames(col("shard"), 0.0, col("seconds"), height=64, width=96, on_error="null")
        query = daft.from_pydict(rows).repartition(4, "shard").with_column("frame", frame)
        answer = query.with_column("opened", opened_here(col("frame"))).to_pydict()
        try:
            daft.from_pydict({"shard": [shards[0] + ".gone"]}).select(decode_frames(col("shard"), 0.0, 0.0)).collect()
            raised = ""
        except Exception as error:  # noqa: BLE001 - of any class: Ray wraps what a worker raises
            raised = str(error)
        outputs = {"shard": [*shards[:3], shards[0] + ".gone"], "output": [f"{folder}/{i}.mp4" for i in range(4)]}
        reports = reencode_ddra(
            col("shard"), output=col("output"), preset="ultrafast", interval=8, num_threads=1, on_error="null"
        )
        written = daft.from_pydict(outputs).repartition(4, "shard").select(reports).to_pydict()["reencoded"]
        indexed = lerobot.build_index(dataset).to_pydict()
    finally:
        ray.shutdown()
        cluster.shutdown()
    differing = 0
    for shard, seconds, picture in zip(answer["shard"], answer["seconds"], answer["frame"], strict=True):
        if picture is not None:
            differing += not np.array_equal(picture, VideoDecoder(shard).get_frames_played_at([seconds]).data[0])
    last_of_worker: dict[str, set[str]] = {}
    for line in answer["opened"]:
        pid, *paths = line.split()
        last_of_worker.setdefault(pid, set()).update(paths)
    return {
        "rows": len(answer["frame"]),
        "nulls": sum(picture is None for picture in answer["frame"]),
        "differing": differing,
        "opened": [sorted(paths) for paths in last_of_worker.values()],
        "raised": raised,
        "written": sorted((report["path"], report["frames"], report["closure_max"]) for report in written),
        "indexed": sorted(indexed["shard"]),
    }


def test_query_on_two_workers_gives_the_same_pixels_and_opens_each_shard_on_one(tmp_path: Path) -> None:
    shards = []
    for number in range(SHARDS):  # each shows something else
        pictures = (np.roll(picture, 9 * number, axis=1) for picture in draw_scene("mixed", 60, 96, 64))
        shards.append(str(encode(tmp_path / f"{number}.mp4", pictures, params="keyint=24:bframes=3")))
    dataset = write_dataset(tmp_path / "dataset", Plan(version="v2.1"))
    seen = run_alone(query_on_ray, shards, str(dataset), str(tmp_path / "new"))
    assert seen["rows"] == ROWS + 2
    assert seen["nulls"] == 2
    assert seen["differing"] == 0
    assert len(seen["opened"]) == 2, "both workers decode"
    assert sorted(path for paths in seen["opened"] for path in paths) == sorted(shards), "each shard is opened once"
    assert "there is no file" in seen["raised"]
    new = [str(tmp_path / "new" / f"{number}.mp4") for number in range(4)]
    assert seen["written"] == [[path, 60, 3] for path in new[:3]] + [[new[3], None, None]]
    assert sorted(map(str, (tmp_path / "new").iterdir())) == new[:3]
    videos = sorted(dataset.glob("videos/**/*.mp4"))
    assert seen["indexed"] == [path.relative_to(dataset).as_posix() for path in videos]
    for path in videos:
        assert VideoDecoder(path)._opened.shard.bytes_read < path.stat().st_size, "the index file is taken"
