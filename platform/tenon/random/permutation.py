"""``torch.randperm``: PyTorch's shuffle, with most swaps done in vectorised rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tenon.errors import RandomArgumentError, UnsupportedError
from tenon.random.discrete import DIGITS, NUMBERS, words64
from tenon.random.generator import Generator, stream_of
from tenon.random.layout import CHUNK, FLOATING, name_of, require
from tenon.random.loops import loops_for
from tenon.random.mt19937 import MersenneTwister

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

#: From this length on PyTorch shuffles with 64-bit words, inside out.
LONG_PERMUTATION = 0xFFFFFFFF // 20
#: Up to so many swaps a Python loop is faster than vectorised rounds.
_SHORT = 1000


def randperm(
    generator: Generator | None, n: int, dtype: DTypeLike = np.int64, *, out: np.ndarray | None = None
) -> np.ndarray:
    """Return a random permutation of ``range(n)``, as ``torch.randperm``.

    RandomArgumentError if ``n`` is negative or the dtype does not represent all indices.
    """
    kind = require(dtype if out is None else out.dtype, NUMBERS, "randperm")
    if n < 0:
        raise RandomArgumentError(f"Trying to create tensor with negative dimension {n}: [{n}]. Pass n >= 0.")
    limit = (1 << DIGITS[name_of(kind)]) + 1 if name_of(kind) in FLOATING else int(np.iinfo(kind).max)
    if n > limit:
        raise RandomArgumentError(
            f"n cannot be greater than {limit} for {name_of(kind)} type, got {n}: {name_of(kind)} does not "
            "represent larger indices exactly. Use int64."
        )
    if out is not None and out.shape != (n,):
        raise UnsupportedError(
            f"randperm: out has shape {out.shape}, expected ({n},). Pass a 1-d array of n elements."
        )
    stream = stream_of(generator)
    with stream.lock:
        values = _shuffled(stream, n) if n < LONG_PERMUTATION else _shuffled_inside_out(stream, n)
    if out is None:
        return np.array(values, kind)
    out[...] = values
    return out


def _shuffled(stream: MersenneTwister, n: int) -> np.ndarray | list[int] | range:
    """A permutation by Fisher-Yates: step i swaps positions i and ``jumps[i]`` >= i."""
    if n < 2:
        return range(n)
    jumps = stream.take(n - 1) % np.arange(n, 1, -1, dtype=np.uint32)
    jumps += np.arange(n - 1, dtype=np.uint32)
    jumps = jumps.view(np.int32)  # n is below LONG_PERMUTATION
    if n <= _SHORT:
        listed = list(range(n))
        for i, j in enumerate(jumps.tolist()):
            listed[i], listed[j] = listed[j], listed[i]
        return listed
    loops = loops_for(n)
    if loops is not None:
        values = np.arange(n)
        loops.swaps(values, jumps.astype(np.int64))
        return values
    values = np.arange(n, dtype=np.int32)
    steps = _swap_in_rounds(values, jumps)
    for i, j in zip(steps.tolist(), jumps[steps].tolist(), strict=True):
        values[i], values[j] = values[j], values[i]
    return values


def _swap_in_rounds(values: np.ndarray, jumps: np.ndarray) -> np.ndarray:
    """Do most swaps in vectorised rounds, in place; return the remaining steps.

    A step may run as soon as no earlier step that has not run swaps one of its two positions. Every round
    reserves all positions for their earliest step and runs the steps for which both are reserved (Shun et
    al., "Sequential random permutation, list contraction and tree contraction are highly parallel", 2015).
    """
    holder = np.empty_like(values)
    steps = np.arange(jumps.size, dtype=np.int32)
    while steps.size > _SHORT:
        targets = jumps[steps]
        holder[steps] = steps
        # NumPy assigns in order: reversed, the earliest step is assigned last. Only earlier steps swap the
        # position of a later step.
        holder[targets[::-1]] = steps[::-1]
        ready = (holder[steps] == steps) & (holder[targets] == steps)
        first, second = steps[ready], targets[ready]
        moved = values[first]
        values[first] = values[second]
        values[second] = moved
        steps = steps[~ready]
    return steps


def _shuffled_inside_out(stream: MersenneTwister, n: int) -> np.ndarray:
    values = np.arange(n)
    for begin in range(0, n, CHUNK):
        end = min(begin + CHUNK, n)
        sources = words64(stream, end - begin) % np.arange(begin + 1, end + 1, dtype=np.uint64)
        for i, j in enumerate(sources.tolist(), begin):
            values[i] = values[j]
            values[j] = i
    return values
