"""``torch.quasirandom``: Sobol sequences, whose points fill a cube evenly.

Point ``k`` is the XOR of the direction numbers at the bits of ``k ^ (k >> 1)``: consecutive points differ by
one direction number, and any point can be computed directly. Points and scrambling are PyTorch's, bit for
bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import tenon
from tenon import Generator, Tensor, from_numpy, randint
from tenon.errors import ArgumentError
from tenon_distributions.quasirandom.direction_numbers import BITS, DIMENSIONS, direction_numbers

if TYPE_CHECKING:
    from tenon import dtype

__all__ = ["SobolEngine"]


class SobolEngine:
    """Draws the points of a Sobol sequence in ``[0, 1)``, one after the other.

    ``scramble=True`` randomizes them and keeps them evenly spread (A. B. Owen, 1998), with random numbers
    from a generator seeded with ``seed``, or from the default one.

    >>> SobolEngine(2).draw(3).tolist()
    [[0.0, 0.0], [0.5, 0.5], [0.75, 0.25]]
    """

    MAXBIT = BITS
    MAXDIM = DIMENSIONS

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ArgumentError(
                f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}], not {dimension}"
            )
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self.sobolstate: Tensor = from_numpy(direction_numbers(dimension))
        self.shift: Tensor = from_numpy(np.zeros(dimension, np.int64))
        if scramble:
            self._scramble()
        self.quasi: Tensor = self.shift.clone()
        self.num_generated = 0

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: dtype | None = None) -> Tensor:
        """Return the next ``n`` points, as ``[n, dimension]``."""
        first = self.num_generated
        self._check(n)
        # The first point is the shift; each later one changes one bit of the Gray code of its index.
        later = np.arange(max(first, 1) - 1, first + n - 1)
        changed = _lowest_zero(later)
        steps = np.concatenate([self.quasi.raw[None], self.sobolstate.raw.T[changed]])
        points = np.bitwise_xor.accumulate(steps, axis=0)
        self.quasi.raw[...] = points[-1]
        dtype = tenon.get_default_dtype() if dtype is None else dtype
        result = from_numpy((points if first == 0 and n else points[1:]) * 2.0**-BITS).to(dtype)
        self.num_generated += n
        return result if out is None else out.resize_as_(result).copy_(result)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: dtype | None = None) -> Tensor:
        """Return the next ``2**m`` points, which must keep the set balanced: a power of two in total."""
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ArgumentError(
                f"The balance properties of Sobol' points require n to be a power of 2. {self.num_generated}"
                f" points have been previously generated, then: n={self.num_generated}+2**{m}={total}. If you"
                " still want to do this, please use 'SobolEngine.draw()' instead."
            )
        return self.draw(n, out, dtype)

    def reset(self) -> SobolEngine:
        """Return to the first point."""
        self.quasi.copy_(self.shift)
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Skip ``n`` points."""
        self._check(n)
        start, end = (max(index - 1, 0) for index in (self.num_generated, self.num_generated + n))
        changed = (start ^ start >> 1) ^ (end ^ end >> 1)
        for bit in range(BITS):
            if changed >> bit & 1:
                self.quasi.raw[...] ^= self.sobolstate.raw[:, bit]
        self.num_generated += n
        return self

    def _check(self, n: int) -> None:
        if n < 0 or self.num_generated + n > 1 << BITS:
            raise ArgumentError(
                f"a Sobol sequence has 2**{BITS} points: {n} more after {self.num_generated} cannot be drawn."
            )

    def _scramble(self) -> None:
        generator = None if self.seed is None else Generator().manual_seed(self.seed)
        flips = randint(2, (self.dimension, BITS), device="cpu", generator=generator).raw
        self.shift.raw[...] = flips @ (1 << np.arange(BITS))
        drawn = randint(2, (self.dimension, BITS, BITS), device="cpu", generator=generator).raw
        lower = np.tril(drawn, -1).astype(np.float32) + np.eye(BITS, dtype=np.float32)
        weights = np.arange(BITS - 1, -1, -1)  # bits of a number, highest first
        bits = (self.sobolstate.raw[:, None, :] >> weights[:, None] & 1).astype(np.float32)
        mixed = (lower @ bits).astype(np.int64) & 1  # [dimension, bit, number]
        self.sobolstate.raw[...] = np.einsum("dbn,b->dn", mixed, 1 << weights)

    def __repr__(self) -> str:
        parts = [f"dimension={self.dimension}"]
        parts += ["scramble=True"] if self.scramble else []
        parts += [f"seed={self.seed}"] if self.seed is not None else []
        return f"{type(self).__name__}({', '.join(parts)})"


def _lowest_zero(numbers: np.ndarray) -> np.ndarray:
    """Return the position of the lowest bit of each number that is not set."""
    return np.log2(~numbers & (numbers + 1)).astype(np.int64)
