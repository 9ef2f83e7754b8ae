# SPDX-License-Identifier: Apache-2.0
"""Random requests as users make them: single frames, windows, strides, clusters, repeats, in any order."""

from __future__ import annotations

import random

LARGEST = 16


def random_request(rng: random.Random, frames: int) -> list[int]:
    """1 to 16 frame numbers in [0, frames)."""
    count = rng.randint(1, LARGEST)
    kind = rng.randrange(6)
    if kind == 0:
        request = [rng.randrange(frames)]
    elif kind == 1:  # a window
        start = rng.randrange(frames)
        request = list(range(start, min(start + count, frames)))
    elif kind == 2:  # every n-th
        step = rng.randint(2, 12)
        request = list(range(rng.randrange(frames), frames, step))[:count]
    elif kind == 3:  # clusters: an anchor and what lies a little before it
        anchors = [rng.randrange(frames) for _ in range(rng.randint(1, 4))]
        request = [max(0, anchor - delta) for anchor in anchors for delta in (0, 1, 3, 7)]
    elif kind == 4:  # repeats
        few = [rng.randrange(frames) for _ in range(rng.randint(1, 3))]
        request = [rng.choice(few) for _ in range(count)]
    else:
        request = [rng.randrange(frames) for _ in range(count)]
    if rng.random() < 0.5:
        rng.shuffle(request)
    return request
