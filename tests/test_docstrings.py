# SPDX-License-Identifier: Apache-2.0
"""The examples in docstrings and in the README run as they are printed."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

import daft_sparsevideo
from lerobot_dataset import Plan, write_dataset
from small_clip import make_clip

ROOT = Path(__file__).parent.parent
MODULES = sorted(path.stem for path in (ROOT / "daft_sparsevideo").glob("*.py") if path.stem != "__init__")


@pytest.fixture(scope="module")
def video_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_clip(tmp_path_factory.mktemp("docstrings") / "clip.mp4", frames=90).name


@pytest.fixture(scope="module")
def dataset_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_dataset(tmp_path_factory.mktemp("docstrings") / "dataset", Plan()))


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_docstrings_run(module: str, video_path: str, dataset_path: str, tmp_path: Path) -> None:
    found = importlib.import_module(f"daft_sparsevideo.{module}")
    output_folder = str(tmp_path)
    names = {"video_path": video_path, "dataset_path": dataset_path, "output_folder": output_folder}
    result = doctest.testmod(found, extraglobs=names, verbose=False)
    assert result.failed == 0


def test_every_public_name_has_an_example() -> None:
    public = [getattr(daft_sparsevideo, name) for name in daft_sparsevideo.__all__ if name not in ("errors", "lerobot")]
    public += [getattr(daft_sparsevideo.lerobot, name) for name in daft_sparsevideo.lerobot.__all__]
    public += [daft_sparsevideo.errors.SparseVideoError]
    assert [found.__name__ for found in public if ">>>" not in (found.__doc__ or "")] == []


def test_examples_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    robot_dataset = importlib.import_module("robot_dataset")
    robot_dataset.write_robot_dataset(tmp_path / "build/demo/dataset", episode_lengths=(45, 40))
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 6
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)  # noqa: S102
