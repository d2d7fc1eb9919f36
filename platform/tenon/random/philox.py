"""Counter-based random numbers: Philox4x32-10, keyed by (seed, step, sample, op).

A block cipher computes four 32-bit words from a 128-bit counter and a 64-bit key (Salmon, Moraes, Dror and
Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011). There is no state between calls, so that a number
depends only on its address:

- key: the 64-bit ``seed``
- counter word 0: the number's index within the sample, divided by 4
- counter word 1: the **global** index of the sample in the data set or global batch
- counter word 2: ``step``, counter word 3: ``op``, which random operation of the step

So the numbers of a sample depend neither on its rank nor on the batch that contains it, and a step that is
run again repeats them.

Next: ``keys.py`` provides (seed, step, samples) to the operations of a training step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon.errors import RandomArgumentError
from tenon.random.layout import require

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF
_MASK = np.uint64(_WORD)
_HALF = np.uint64(32)
_ROUNDS = 10
#: Counters encrypted at once, so that temporaries stay in the second-level cache.
_CHUNK = 1 << 13


def philox4x32(counter: ArrayLike, key: tuple[int, int]) -> np.ndarray:
    """Encrypt counters ``[n, 4]`` (32-bit words) under ``key``; uint32 ``[n, 4]``.

    >>> hex(philox4x32([[0, 0, 0, 0]], (0, 0))[0, 0])
    '0x6627e8d5'
    """
    words = np.asarray(counter, dtype=np.uint64)
    c0, c1, c2, c3 = (np.ascontiguousarray(words[:, i]) for i in range(4))
    k0, k1 = key
    for _ in range(_ROUNDS):
        left = c0 * _MULTIPLIERS[0]
        right = c2 * _MULTIPLIERS[1]
        c1 ^= right >> _HALF
        c1 ^= np.uint64(k0)
        c3 ^= left >> _HALF
        c3 ^= np.uint64(k1)
        left &= _MASK
        right &= _MASK
        c0, c1, c2, c3 = c1, right, c3, left
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    out = np.empty((words.shape[0], 4), np.uint32)
    for i, column in enumerate((c0, c1, c2, c3)):
        out[:, i] = column
    return out


class CounterGenerator:
    """Numbers by address under one seed.

    >>> g = CounterGenerator(7)
    >>> whole = g.uniform(step=3, samples=range(8), op=0, shape=(5,))
    >>> part = g.uniform(step=3, samples=[6, 2], op=0, shape=(5,))
    >>> bool((part == whole[[6, 2]]).all())
    True
    """

    __slots__ = ("_key", "seed")

    def __init__(self, seed: int) -> None:
        if not -(1 << 63) <= seed < 1 << 64:
            raise RandomArgumentError(f"The seed {seed} has more than 64 bits. Take it modulo 2**64.")
        self.seed = seed & 0xFFFFFFFFFFFFFFFF
        self._key = (self.seed & _WORD, self.seed >> 32)

    def words(self, *, step: int, samples: int | Iterable[int], op: int, count: int) -> np.ndarray:
        """``count`` uint32 words for each sample: ``[samples, count]``, or ``[count]`` for one sample."""
        indices = _addresses(step, samples, op)
        blocks = -(-count // 4)
        out = np.empty((indices.size * blocks, 4), np.uint32)
        counter = np.empty((min(_CHUNK, len(out)), 4), np.uint64)
        counter[:, 2], counter[:, 3] = step, op
        for begin in range(0, len(out), _CHUNK):
            part = out[begin : begin + _CHUNK]
            number = np.arange(begin, begin + len(part))
            counters = counter[: len(part)]
            counters[:, 0] = number % blocks
            counters[:, 1] = indices[number // blocks]
            part[...] = philox4x32(counters, self._key)
        table = out.reshape(indices.size, 4 * blocks)[:, :count]
        return table[0] if isinstance(samples, (int, np.integer)) else table

    def uniform(
        self,
        *,
        step: int,
        samples: int | Iterable[int],
        op: int,
        shape: Sequence[int],
        dtype: DTypeLike = np.float32,
    ) -> np.ndarray:
        """Numbers in [0, 1) of shape ``[samples, *shape]``: 24 bits for float32, 53 for float64."""
        kind = require(dtype, ("float32", "float64"), "CounterGenerator.uniform")
        count = math.prod(shape)
        if kind.itemsize == 4:
            words = self.words(step=step, samples=samples, op=op, count=count)
            values = (words >> np.uint32(8)).view(np.int32).astype(np.float32)
            values *= np.float32(2.0**-24)
        else:
            words = self.words(step=step, samples=samples, op=op, count=2 * count)
            values = (words[..., 0::2] >> np.uint32(5)).astype(np.float64)
            values *= 2.0**26
            values += words[..., 1::2] >> np.uint32(6)
            values *= 2.0**-53
        return values.reshape(*values.shape[:-1], *shape)

    def normal(self, *, step: int, samples: int | Iterable[int], op: int, shape: Sequence[int]) -> np.ndarray:
        """Unit normals in float32 of shape ``[samples, *shape]``, by Box-Muller on pairs of 32-bit words."""
        count = math.prod(shape)
        pairs = -(-count // 2)
        words = self.words(step=step, samples=samples, op=op, count=2 * pairs)
        # (w + 1/2) / 2**32 lies strictly inside (0, 1).
        uniforms = (words + 0.5) * 2.0**-32
        radius = np.sqrt(-2.0 * np.log(uniforms[..., 0::2]))
        angle = 2.0 * math.pi * uniforms[..., 1::2]
        values = np.empty(words.shape, np.float32)
        values[..., 0::2] = radius * np.cos(angle)
        values[..., 1::2] = radius * np.sin(angle)
        values = values[..., :count]
        return values.reshape(*values.shape[:-1], *shape)


def _addresses(step: int, samples: int | Iterable[int], op: int) -> np.ndarray:
    for name, value in (("step", step), ("op", op)):
        if not 0 <= value <= _WORD:
            raise RandomArgumentError(
                f"{name}={value} does not lie in [0, 2**32). Counters are 32 bits wide."
            )
    indices = np.atleast_1d(
        np.asarray(samples if isinstance(samples, (int, np.integer, np.ndarray)) else list(samples))
    )
    if indices.size and (indices.dtype.kind not in "iu" or indices.min() < 0 or indices.max() > _WORD):
        raise RandomArgumentError(
            f"samples must be integers in [0, 2**32), got {indices.dtype} from {indices.min()} to "
            f"{indices.max()}. "
            "Pass global sample indices."
        )
    if indices.ndim != 1:
        raise RandomArgumentError(
            f"samples must be one index or a sequence of them, got shape {indices.shape}."
        )
    return indices.astype(np.uint64)


def philox_uniform(
    seed: int,
    step: int,
    sample: int | Iterable[int],
    op: int,
    shape: Sequence[int],
    dtype: DTypeLike = np.float32,
) -> np.ndarray:
    """Return ``CounterGenerator(seed).uniform(...)``: numbers of this shape for one sample, or for each."""
    return CounterGenerator(seed).uniform(step=step, samples=sample, op=op, shape=shape, dtype=dtype)
