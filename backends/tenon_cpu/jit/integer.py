"""Exact products of 8-bit integers by generated code (``integer_code.py``): packed weights, tables, calls.

They are for processors whose int8 instructions add in 16 bits with saturation, so that oneDNN's kernels are
not exact there: x86 with AVX2 and without VNNI.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.compiler.compile import available
from tenon_cpu.jit.eager_ops.calls import share
from tenon_cpu.jit.integer_code import PANEL, TABLE, text
from tenon_cpu.jit.loops import rounding
from tenon_cpu.onednn.primitives import address_of

#: Rows that use a panel of the weight before the next is read; multiplications from which threads are used.
_GROUP, _SHARED = 48, 1 << 18
_FLOAT = np.dtype(np.float32)


@functools.cache
def usable() -> bool:
    """Whether this processor has the instruction, and code can be compiled."""
    return available() and llvm.available() and "+avx2" in llvm.compiler().features


def panels(weight: np.ndarray) -> np.ndarray:
    """Pack ``weight[columns, taps, inner]`` into panels of 16 columns, pair by pair, padded with zeros."""
    columns, taps, inner = weight.shape
    count, pairs = -(-columns // PANEL), -(-inner // 2)
    wide = np.zeros((count * PANEL, taps, 2 * pairs), np.int8)
    wide[:columns, :, :inner] = weight
    return np.ascontiguousarray(wide.reshape(count, PANEL, taps, pairs, 2).transpose(0, 2, 3, 1, 4))


class Product:
    """``target[row] = source[row] @ weight.T``, where rows of ``source`` are gathered.

    A row consists of the runs of ``inner`` numbers that begin at its index in ``places`` plus each of
    ``taps``. ``source`` holds int16, and two numbers of padding at its end for the last pair. The results are
    ``sums * scale + bias``, but at least ``least``: float32, or uint8 if ``out`` gives a step and a zero
    point.
    """

    def __init__(
        self, source: np.ndarray, places: np.ndarray, taps: Sequence[int], inner: int, columns: int,
        target_row: int, *, least: float = -math.inf, out: tuple[float, int] | None = None,
    ) -> None:  # fmt: skip
        rows, count = places.size, -(-columns // PANEL)
        groups = -(-rows // _GROUP)
        self.columns = columns
        self._scale, self._bias = (np.zeros(count * PANEL, _FLOAT) for _ in range(2))
        numbers = np.array([least, *(out or (1, 0))], _FLOAT)
        self._arrays = source, np.ascontiguousarray(places, np.int64), np.array(taps, np.int64), numbers
        known = {
            "count": count * groups, "source": address_of(source), "places": address_of(self._arrays[1]),
            "taps": address_of(self._arrays[2]), "tap_count": len(taps), "pairs": -(-inner // 2), "weight": 0,
            "scale": address_of(self._scale), "bias": address_of(self._bias), "target": 0,
            "target_row": target_row, "rows": rows, "columns": columns, "group": _GROUP, "groups": groups,
            "numbers": address_of(numbers),
        }  # fmt: skip
        self._table = np.array([known[word] for word in TABLE], np.int64)
        self._entry = llvm.load(text(out is not None))
        self.address = llvm.address_of(self._entry)
        self.threads = llvm.ALL if rows * inner * len(taps) * columns >= _SHARED else 1
        self._at = address_of(self._table)
        self._weight, self._target = (TABLE.index(word) for word in ("weight", "target"))

    def __call__(
        self, weight: np.ndarray, scale: np.ndarray, step: np.float32, bias: np.ndarray | None, target: int
    ) -> None:
        """Multiply by the packed ``weight`` and write the results to the address ``target``."""
        np.multiply(scale, step, out=self._scale[: self.columns])
        if bias is not None:
            self._bias[: self.columns] = bias
        table = self._table
        table[self._weight], table[self._target] = address_of(weight), target
        self._entry(self._at, self.threads)

    def table(self, weight: np.ndarray, scale: np.ndarray, source: int, target: int) -> int:
        """The address of the table of a product from the address ``source`` to ``target``, for a loop that
        calls the code at ``address`` with it."""
        self._scale[: self.columns] = scale
        words = {"weight": address_of(weight), "source": source, "target": target}
        for word, value in words.items():
            self._table[TABLE.index(word)] = value
        return self._at


class Rows:
    """``size`` numbers of 16 bits: rows of ``inner`` numbers, which begin at ``places``, between zeros."""

    def __init__(self, size: int, places: np.ndarray, inner: int) -> None:
        self.source = np.zeros(size + 2, np.uint16)
        self.places, self.inner = np.ascontiguousarray(places, np.int64), inner

    def fill(self, x: np.ndarray, zero: int) -> None:
        """Fill the rows with ``x[count, inner]`` of uint8, minus its zero point."""
        share(rounding.words, (x, zero, self.places, self.source), len(x), x.size)

    def fill_steps(self, x: np.ndarray, step: float | np.float32, zero: int) -> None:
        """Fill the rows with float32 ``x[count, inner]``, quantized, minus the zero point."""
        share(rounding.quantized_words, (x, step, zero, self.places, self.source), len(x), 4 * x.size)

    def fill_scaled(self, x: np.ndarray, factor: float) -> None:
        """Fill the rows with ``rint(x * factor)``, which must fit into 16 bits."""
        share(rounding.scaled_words, (x, factor, self.places, self.source), len(x), x.size)


__all__ = ["Product", "Rows", "panels", "usable"]
