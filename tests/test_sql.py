# SPDX-License-Identifier: Apache-2.0
"""The functions in `daft.sql`."""

from __future__ import annotations

import daft
import numpy as np
import pytest
from daft import DataType, lit

from daft_sparsevideo import register_sql
from small_clip import Clip, make_clip


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Clip:
    register_sql()
    register_sql()  # again does no harm
    return make_clip(tmp_path_factory.mktemp("sql") / "top.mp4")


def select(clip: Clip, *terms: str) -> daft.DataFrame:
    rows = {"begin": [0.0, 1.0], "t": [0.5, 0.1], "stop": [1.0, 2.0], "ts": [[0.0, 0.1], [0.1, 0.2]]}
    named = daft.from_pydict(rows).with_column("shard", lit(clip.name))
    return daft.sql(" ".join(("select", terms[0], "from rows", *terms[1:])), rows=named)


def test_frames_come_with_columns_by_position_and_options_by_name(clip: Clip) -> None:
    plain = select(clip, "decode_frames(shard, begin, t)", "where t > 0.2").to_pydict()["frame"]
    np.testing.assert_array_equal(plain, clip.frames[15:16])
    options = "height => 64, width => 96, as_tensor => true, match => 'played', tolerance_s => null, batch_size => 2"
    tensor = select(clip, f"decode_frames(shard, begin, t, stop, {options}) as top")
    assert tensor.schema()["top"].dtype == DataType.tensor(DataType.uint8(), (64, 96, 3))
    np.testing.assert_array_equal(tensor.to_pydict()["top"], [clip.frames[15], clip.frames[33]])
    of_a_path = select(clip, f"decode_frames('{clip.name}', 0.0, t)").to_pydict()["frame"]
    np.testing.assert_array_equal(of_a_path, [clip.frames[15], clip.frames[3]])
    with pytest.raises(IndexError, match="outside its episode"):
        select(clip, "decode_frames(shard, begin, t + 1.0, stop)").collect()


def test_windows_take_lists_or_deltas(clip: Clip) -> None:
    size = "height => 64, width => 96"
    got = select(clip, f"decode_windows(shard, begin, ts, stop, length => 2, {size})").to_pydict()["window"]
    np.testing.assert_array_equal(got[1]["frames"], [clip.frames[33], clip.frames[36]])
    for end in ("stop", "null"):
        deltas = f"decode_windows(shard, begin, t, {end}, deltas_s => [-0.2, 0.6], {size})"
        cells = select(clip, deltas).to_pydict()["window"]
        assert [cell["is_pad"] for cell in cells] == [[False, end == "stop"], [True, False]]
    with pytest.raises(Exception, match="missing 1 required positional argument: 'end'"):
        select(clip, f"decode_windows(shard, begin, t, deltas_s => [0.0], {size})")


def test_rows_are_explained(clip: Clip) -> None:
    cells = select(clip, "explain_decode(shard, begin, t) as why").to_pydict()["why"]
    assert [cell["frame"] for cell in cells] == [15, 33]
