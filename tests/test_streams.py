# SPDX-License-Identifier: Apache-2.0
"""The made streams are what their rows say: an encoder that clips or ignores a setting would empty the protocol."""

from __future__ import annotations

import pytest

from coded_facts import facts
from scenes import number_of, numbered
from streams import STREAMS, Stream, stream_path

# How x264's options line writes what is set by another name or word.
X264_WORDS = {
    "b-pyramid": {"none": "0", "strict": "1", "normal": "2"},
    "direct": {"none": "0", "spatial": "1", "temporal": "2", "auto": "3"},
}
X264_TOKENS = {
    "tff=1": "interlaced=tff",
    "bff=1": "interlaced=bff",
    "fake-interlaced=1": "interlaced=fake",
    "no-deblock=1": "deblock=0:0:0",
}
X264_NAMES = {"min-keyint": "keyint_min", "mixed-refs": "mixed_ref"}
# Not in that line: they are seen in the frames (size of `shows`, colour tags below) or bound the rate only.
UNWRITTEN = {"range", "colormatrix", "colorprim", "transfer", "level"}
NOT_WITHOUT_B = {"b-pyramid", "b-adapt", "weightb", "direct"}  # left out of x264's line when there are no B pictures
X265_SWITCHES = {
    "amp",
    "b-pyramid",
    "constrained-intra",
    "intra-refresh",
    "lossless",
    "open-gop",
    "rect",
    "sao",
    "temporal-mvp",
    "tskip",
    "weightb",
    "weightp",
    "wpp",
}


def written_tokens(stream: Stream) -> set[str]:
    """The tokens that the encoder must have written of itself if it took every setting of the row."""
    tokens = set(stream.wrote.split())
    for setting in stream.params.split(":") if stream.params else ():
        key, value = setting.split("=")
        if key in UNWRITTEN:
            continue
        if stream.codec == "libx264":
            if setting in X264_TOKENS:
                tokens.add(X264_TOKENS[setting])
            elif key not in NOT_WITHOUT_B or "bframes=0" not in stream.params:
                name = X264_NAMES.get(key, key.replace("-", "_"))
                tokens.add(f"{name}={X264_WORDS.get(key, {}).get(value, value)}")
        elif key.startswith("no-"):
            tokens.add(key)
        elif key in X265_SWITCHES:
            tokens.add(key if value == "1" else f"no-{key}")
        elif key != "scaling-list":
            tokens.add(setting)
    return tokens


def test_there_are_a_hundred_streams_of_different_names() -> None:
    assert len({stream.name for stream in STREAMS}) == 100


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: str(stream.name))
def test_stream_is_what_its_row_says(stream: Stream) -> None:
    seen = facts(stream_path(stream))
    assert seen.frames == stream.frames
    assert (seen.width, seen.height) == stream.size
    assert written_tokens(stream) <= seen.options, written_tokens(stream) - seen.options
    for name, wanted in stream.shows.items():
        value = getattr(seen, name.removeprefix("min_"))
        assert value >= wanted if name.startswith("min_") else value == wanted, (name, value)


def test_numbered_pictures_carry_their_number() -> None:
    for number in (0, 1, 255, 256, 40_000, 65_535):
        assert number_of(numbered(number)) == number
