# SPDX-License-Identifier: Apache-2.0
"""An encode that is killed at any moment leaves what was there, or a whole shard; Ctrl-C ends one soon."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from daft_sparsevideo import VideoDecoder
from encoding import encode
from own_process import TESTS, run_alone
from reencoded import leftovers, reencode, shown
from scenes import numbered

OLD = b"what was there before"
FRAMES = 60

PROGRAM = """
import sys
from daft_sparsevideo.open_shards import ShardSource
from daft_sparsevideo.shard_encoding import Settings, reencode_shard

print("begins", flush=True)
while True:
    reencode_shard(ShardSource.of_path(sys.argv[1]), sys.argv[2], None, Settings(preset="ultrafast", interval=8))
"""


@pytest.mark.parametrize("is_there", [False, True])
def test_killed_encode_leaves_what_was_there_or_a_whole_shard(tmp_path: Path, is_there: Any) -> None:
    source = encode(tmp_path / "before.mp4", (numbered(number) for number in range(FRAMES)))
    output = tmp_path / "new" / "after.mp4"
    output.parent.mkdir()
    chance, outcomes = random.Random(5), set()
    path = os.pathsep.join(filter(None, (str(TESTS.parent), os.environ.get("PYTHONPATH"))))
    for _ in range(8):
        output.unlink(missing_ok=True)
        if is_there:
            output.write_bytes(OLD)
        with subprocess.Popen(  # noqa: S603 - this very interpreter
            [sys.executable, "-c", PROGRAM, str(source), str(output)],
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.PIPE,
        ) as encoding:
            assert encoding.stdout is not None
            encoding.stdout.readline()
            time.sleep(chance.random() * 0.6)
            encoding.kill()
        assert set(leftovers(output.parent)) <= {"after.mp4", "after.mp4.partial"}
        if not output.exists() or output.read_bytes() == OLD:
            assert output.exists() == is_there
            outcomes.add("old")
        else:
            assert shown(output).numbers == list(range(FRAMES))
            assert len(VideoDecoder(output)) == FRAMES
            outcomes.add("new")
    assert "old" in outcomes
    reencode(source, output)
    assert leftovers(output.parent) == ["after.mp4"], "the next run tidies up"


def interrupt(source: str, folder: str) -> str:
    """Press Ctrl-C in an encode of minutes, and tell what came of it."""
    Path(folder, "after.mp4").write_bytes(OLD)
    threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    outcome = "finished"
    try:
        reencode(source, f"{folder}/after.mp4", preset="placebo")
    except KeyboardInterrupt:
        outcome = "interrupted"
    return outcome


def test_interrupted_encode_ends_soon_and_leaves_nothing(tmp_path: Path) -> None:
    source = encode(
        tmp_path / "before.mp4", (numbered(number, 640, 480) for number in range(900)), options={"preset": "ultrafast"}
    )
    folder = tmp_path / "new"
    folder.mkdir()
    assert run_alone(interrupt, str(source), str(folder), timeout_s=60) == "interrupted"
    assert (folder / "after.mp4").read_bytes() == OLD
    assert leftovers(folder) == ["after.mp4"]
