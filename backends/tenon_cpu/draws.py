"""Long draws of random numbers by compiled loops: the same numbers as ``tenon.random`` makes with NumPy."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

#: Words of a draw from which it is worth loading machine code for, and from which it pays once some is.
_WORTH, _LEAST = 1 << 19, 1 << 13
_BLOCK = 624  # words of MT19937's state; the position in it follows


class CompiledLoops:
    """``tenon.random.loops.Loops``; loads nothing before a long draw."""

    def __init__(self) -> None:
        self._kernels: Any = None
        self._lies_as_expected: bool | None = None

    def worth(self, words: int) -> bool:
        """By size, and whether compiled code is in use already: the numbers are the same either way."""
        if words < _LEAST or (words < _WORTH and "llvmlite" not in sys.modules):
            return False
        if self._kernels is None:
            from tenon_cpu.jit.compiler import compile as jit
            from tenon_cpu.jit.loops import draws

            self._kernels = draws if jit.available() else False
        return self._kernels is not False

    def words(self, bits: Any, out: Any) -> bool:
        """Step the state of NumPy's generator itself, if it lies in memory as expected."""
        memory = (ctypes.c_uint32 * (_BLOCK + 1)).from_address(bits.ctypes.state_address)
        state = np.frombuffer(memory, np.uint32)
        if self._lies_as_expected is None:
            known = bits.state["state"]
            self._lies_as_expected = bool((state[:-1] == known["key"]).all() and state[-1] == known["pos"])
        if self._lies_as_expected:
            self._kernels.words(state, out)
        return self._lies_as_expected

    def below(self, words: Any, threshold: float, out: Any) -> None:
        """Coins."""
        self._kernels.below(words, threshold, out)

    def unit32(self, words: Any, out: Any) -> None:
        """Normals."""
        self._kernels.unit32(words, out)

    def log1p(self, values: Any) -> None:
        """Logarithms."""
        self._kernels.log1p(values)

    def swaps(self, values: Any, jumps: Any) -> None:
        """Permutations."""
        self._kernels.swaps(values, jumps)
