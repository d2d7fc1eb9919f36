"""A cache of float32 normals computed in advance: NumPy takes nearly as long for one block as for a hundred.

Small draws share one call of ``unit32`` on the words that the stream has buffered. The values are cached with
the position of their first word, so that only a draw that starts at one of their blocks uses them; any other
draw computes new ones, or does not use the cache. Words are consumed only when a draw uses their numbers.
"""

from __future__ import annotations

import numpy as np

from tenon.random.box_muller import unit32
from tenon.random.mt19937 import MersenneTwister

#: The largest draw that uses numbers computed in advance.
LIMIT = 512


def whole_blocks(stream: MersenneTwister, n: int) -> np.ndarray | None:
    """Return the next ``n`` unit normals, a multiple of 16; None if the buffer has too few words."""
    start, cached = stream.position(), stream.normals
    if cached is None or cached[1] != 16 or start < cached[0] or (start - cached[0]) % 16:
        start, words = stream.ahead()
        cached = stream.normals = (start, 16, _blocks(words[: words.size // 16 * 16]))
    first = (start - cached[0]) // 16
    values = cached[2][first : first + n // 16].reshape(-1)
    if values.size < n:
        return None
    stream.skip(n)
    return values


def with_tail(stream: MersenneTwister, n: int) -> np.ndarray | None:
    """Return the blocks for ``n`` numbers, not a multiple of 16, with the redrawn block last; None if they
    are not cached.

    Such a draw consumes n + 16 words and so shifts the blocks. Numbers are computed in advance only at the
    second of two equal draws in a row.
    """
    start, stride = stream.position(), n + 16
    again = stream.last_draw == (stride, start)
    stream.last_draw = (stride, start + stride)
    cached = stream.normals
    if cached is None or cached[1] != stride or start < cached[0] or (start - cached[0]) % stride:
        if not again:
            return None
        start, words = stream.ahead()
        rows = words[: words.size // stride * stride].reshape(-1, stride)
        picked = np.concatenate((rows[:, : n // 16 * 16], rows[:, n:]), axis=1)
        cached = stream.normals = (start, stride, _blocks(picked.reshape(-1)).reshape(picked.shape))
    draw = (start - cached[0]) // stride
    if draw >= len(cached[2]):
        return None
    stream.skip(stride)
    return cached[2][draw]


def _blocks(words: np.ndarray) -> np.ndarray:
    values = np.empty(words.size, np.float32)
    if words.size:
        unit32(words, values)
    return values.reshape(-1, 16)
