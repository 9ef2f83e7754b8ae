# SPDX-License-Identifier: Apache-2.0
"""Queries that end early, by Ctrl-C, by `limit` or with the interpreter, end well, and the next one works."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import daft
import numpy as np
import pytest
from daft import col

from daft_sparsevideo import VideoDecoder, decode_frames
from encoding import encode
from own_process import run_alone

FRAMES = 300


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("interrupts") / "long.mp4"
    pictures = (np.full((360, 640, 3), number % 250, np.uint8) for number in range(FRAMES))
    return str(encode(path, pictures, params="keyint=300:bframes=0", options={"preset": "ultrafast"}))


def long_query(shard: str) -> daft.DataFrame:
    """Hours of work: every row is decoded from the first frame on."""
    rows = {"seconds": [(FRAMES - 1) / 30] * 400_000}
    frame = decode_frames(shard, 0.0, col("seconds"), height=36, width=64, batch_size=1)
    return daft.from_pydict(rows).with_column("frame", frame)


def interrupt(shard: str) -> list[Any]:
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    outcome = "finished"
    try:
        long_query(shard).collect()
    except KeyboardInterrupt:
        outcome = "interrupted"
    rows = long_query(shard).limit(3).to_pydict()["frame"]
    return [outcome, len(rows), [int(rows[0].mean()), int(VideoDecoder(shard).get_frames_at([-1]).data.mean())]]


def test_interrupted_query_ends_and_the_next_one_works(shard: str) -> None:
    outcome, rows, (mean, mean_of_last_frame) = run_alone(interrupt, shard, timeout_s=120)
    assert (outcome, rows) == ("interrupted", 3)
    assert abs(mean - mean_of_last_frame) <= 1


def decode_for_long(shard: str) -> None:
    decoder = VideoDecoder(shard)
    while True:
        decoder.get_frames_at([-1])


def test_interpreter_that_ends_while_threads_decode_ends_well(shard: str) -> None:
    assert run_alone(decode_until_exit, shard, timeout_s=120) == "left"


def decode_until_exit(shard: str) -> str:
    for _ in range(3):
        threading.Thread(target=decode_for_long, args=(shard,), daemon=True).start()
    return "left"


def test_spawned_workers_decode(shard: str) -> None:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        means = list(pool.map(mean_of_frame, [shard] * 4, [0, 100, 200, 299]))
    assert means == [mean_of_frame(shard, number) for number in (0, 100, 200, 299)]


def mean_of_frame(shard: str, number: int) -> float:
    return float(VideoDecoder(shard).get_frames_at([number]).data.mean())
