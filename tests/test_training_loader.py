# SPDX-License-Identifier: Apache-2.0
"""The batches of examples/training_loader.py: right frames, and no copy of them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oracle import decode_sequentially, rgb_of

torch = pytest.importorskip("torch")

EXAMPLES = Path(__file__).parent.parent / "examples"
LENGTHS = (20, 15)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        loader: Any = importlib.import_module("training_loader")
        dataset = importlib.import_module("robot_dataset").write_robot_dataset(
            tmp_path_factory.mktemp("training") / "dataset", episode_lengths=LENGTHS
        )
    loader.rows = loader.lerobot.read(dataset)
    loader.shard = dataset / f"videos/{loader.CAMERA}/chunk-000/file-000.mp4"
    loader.SIZE = {"height": 48, "width": 64}
    return loader


def test_batches_hold_the_windows_of_their_rows(example: Any) -> None:
    pictures = [
        rgb_of(frame.reformat(64, 48, format="rgb24", interpolation="BILINEAR"))
        for frame in decode_sequentially(example.shard)
    ]
    seen: list[int] = []
    for batch in example.ArrowBatches(example.windows(example.rows, epoch=1, batch_size=8)):
        assert batch["frames"].shape[1:] == (3, 48, 64, 3)
        assert batch["action"].shape[1:] == (3,)
        for index, frames, is_pad in zip(*(batch[name].numpy() for name in ("index", "frames", "is_pad")), strict=True):
            first = 0 if index < LENGTHS[0] else LENGTHS[0]
            asked = np.array([index - 6, index - 3, index])
            np.testing.assert_array_equal(is_pad, asked < first)
            np.testing.assert_array_equal(frames, [pictures[i] for i in np.maximum(asked, first)])
            seen.append(int(index))
    assert sorted(seen) == list(range(sum(LENGTHS)))
    assert seen != sorted(seen), "shuffled"


def test_frames_are_the_memory_of_the_column(example: Any) -> None:
    for batch in example.windows(example.rows, epoch=0, batch_size=8).limit(16).to_arrow_iter():
        storage = batch.column("window").field("frames").storage
        tensor = example.tensor_of(storage, 3, 48, 64, 3)
        assert tensor.data_ptr() == storage.flatten().buffers()[1].address + storage.flatten().offset
