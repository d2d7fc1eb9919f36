"""Long draws of random numbers by compiled loops: the same numbers as ``tenon.random`` makes with NumPy."""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType

import numpy as np

#: Sizes of a draw, in random words, from which it pays to load machine code, and to use code that is loaded.
_LOADING, _LEAST = 1 << 19, 1 << 13
_BLOCK = 624  # words of MT19937's state; the position in it follows


class CompiledLoops:
    """Implements ``tenon.random.loops.Loops``; loads no machine code before a long draw."""

    def __init__(self) -> None:
        self._draws: ModuleType | None = None
        self._available: bool | None = None
        self._known_layout: bool | None = None

    def is_faster(self, words: int) -> bool:
        """Whether compiled loops are faster for a draw of so many words; the numbers are the same."""
        if words < _LEAST or (words < _LOADING and "llvmlite" not in sys.modules):
            return False
        if self._available is None:
            from tenon_cpu.jit.compiler import compile as jit

            self._available = jit.available()
        return self._available

    @property
    def _kernels(self) -> ModuleType:
        if self._draws is None:
            from tenon_cpu.jit.loops import draws

            self._draws = draws
        return self._draws

    def words(self, bits: np.random.MT19937, out: np.ndarray) -> bool:
        """Fill ``out`` with the next words of ``bits``; False if its state lies otherwise in memory."""
        memory = (ctypes.c_uint32 * (_BLOCK + 1)).from_address(bits.ctypes.state_address)
        state = np.frombuffer(memoryview(memory), np.uint32)
        if self._known_layout is None:
            known = bits.state["state"]
            self._known_layout = bool((state[:-1] == known["key"]).all() and state[-1] == known["pos"])
        if self._known_layout:
            self._kernels.words(state, out)
        return self._known_layout

    def below(self, words: np.ndarray, threshold: float, out: np.ndarray) -> None:
        """Write 1.0 where the number of two words is below ``threshold``, else 0.0."""
        self._kernels.below(words, threshold, out)

    def unit32(self, words: np.ndarray, out: np.ndarray) -> None:
        """Write standard normals of float32, made of ``words``."""
        self._kernels.unit32(words, out)

    def log1p(self, values: np.ndarray) -> None:
        """Replace each of ``values`` by ``log(1 + value)``."""
        self._kernels.log1p(values)

    def swaps(self, values: np.ndarray, jumps: np.ndarray) -> None:
        """Exchange ``values[i]`` and ``values[jumps[i]]`` for each ``i`` in order: a permutation."""
        self._kernels.swaps(values, jumps)
