# SPDX-License-Identifier: Apache-2.0
"""What all tests share: where outside files may lie, and the lines that a long test adds to the closing summary."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import av
import pytest
from hypothesis import HealthCheck, settings

# Tests assert counts and pixels, never times: a busy machine must not fail them.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.load_profile("untimed")

SUMMARY = pytest.StashKey[list[str]]()


def shared_folder() -> Path:
    """The folder of real recordings beside the repository; its tests are skipped where it is absent."""
    return Path(os.environ.get("SPARSEVIDEO_SHARED") or Path(__file__).resolve().parents[2] / "shared")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SUMMARY] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if lines := config.stash[SUMMARY]:
        terminalreporter.section("counts")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def add_summary_line(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Append one line to what pytest prints at its end."""
    return pytestconfig.stash[SUMMARY].append


@pytest.fixture(scope="session")
def robot_shard() -> Callable[[str, str], Path]:
    """The video of one camera of a robot data set, or a skip that names what is missing."""

    def find(dataset: str, camera: str) -> Path:
        videos = shared_folder() / "robot" / dataset / "videos"
        path = videos / f"observation.images.{camera}" / "chunk-000" / "file-000.mp4"
        if not path.exists():
            pytest.skip(f"{path} is absent")
        return path

    return find


@pytest.fixture(autouse=True, scope="session")
def quiet_ffmpeg() -> Iterator[None]:
    """PyAV's FFmpeg says nothing, unless a test listens."""
    av.logging.set_level(av.logging.PANIC)
    yield
    av.logging.set_level(None)
