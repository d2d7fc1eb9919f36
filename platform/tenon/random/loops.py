"""Accelerated loops of the random stream: a backend may replace NumPy's, with identical bits.

A backend registers an object with the methods of ``Loops`` by ``use``. ``is_faster(n)`` is called first, with
the number of words of a draw.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np


class Loops(Protocol):
    """The loops that a backend may accelerate."""

    def is_faster(self, words: int) -> bool:
        """Return whether the other methods are faster than NumPy for a draw of this many words."""

    def words(self, bits: np.random.MT19937, out: np.ndarray) -> bool:
        """Fill uint32 ``out`` from NumPy's ``MT19937``, whose state advances; False if unsupported."""

    def below(self, words: np.ndarray, threshold: float, out: np.ndarray) -> None:
        """float32 ``out``: 1 where the 53-bit integer of two words is below ``threshold``, else 0."""

    def unit32(self, words: np.ndarray, out: np.ndarray) -> None:
        """Compute unit normals from words, as ``box_muller.unit32`` does."""

    def log1p(self, values: np.ndarray) -> None:
        """Replace flat float64 ``values`` by the C library's log1p of them."""

    def swaps(self, values: np.ndarray, jumps: np.ndarray) -> None:
        """Swap int64 ``values[i]`` and ``values[jumps[i]]`` for each ``i`` in turn."""


class _State:
    loops: Loops | None = None


def use(loops: Loops | None) -> None:
    """Register ``loops``; None restores NumPy's."""
    _State.loops = loops


def loops_for(words: int) -> Loops | None:
    """Return the registered loops if they are faster for this number of words; None to use NumPy."""
    loops = _State.loops
    return loops if loops is not None and loops.is_faster(words) else None
