"""Routines of LAPACK and BLAS that NumPy has no function for, called in the OpenBLAS that NumPy loaded.

LU factors that are kept for a second solution, Cholesky's without transposing the matrix, ``Q`` and ``R`` by
blocks, solutions of triangular systems, least squares by QR. Matrices are float32 or float64. These routines
read memory by columns, so a matrix in C order is its transpose to them.
"""

from __future__ import annotations

import ctypes
import functools

import numpy as np

from tenon_cpu.threads import loaded_libraries

#: Prefix and suffix of OpenBLAS's names, and the integer type of such a build.
_NAMINGS = (
    ("scipy_", "_64_", np.int64),
    ("scipy_", "_", np.int32),
    ("", "_64_", np.int64),
    ("", "_", np.int32),
)
#: The most rows of a triangular system that is left to BLAS.
_BLOCK = 64
#: Reflections in a block of ``Q``.
_REFLECTIONS = 32
_LETTERS = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}


class Routines:
    """The routines of one dtype, by name; ``found`` is whether the library was found."""

    def __init__(self, letter: str) -> None:
        self.letter, self.found = letter, False
        for path in loaded_libraries("openblas"):
            library = ctypes.CDLL(path)
            for first, last, integer in _NAMINGS:
                if hasattr(library, f"{first}{letter}getrf{last}"):
                    self.library, self.first, self.last, self.integer = library, first, last, integer
                    self.found = True
                    return

    def run(self, name: str, *args: str | int | np.ndarray) -> None:
        """Call a routine as Fortran does: arguments by address, the lengths of strings after all others."""
        arguments: list[object] = []
        letters = 0
        for a in args:
            if isinstance(a, str):
                arguments.append(ctypes.c_char_p(a.encode()))
                letters += 1
            elif isinstance(a, int):
                arguments.append(ctypes.byref(self.integer_of(a)))
            else:
                arguments.append(ctypes.c_void_p(a.ctypes.data))
        lengths = [ctypes.c_size_t(1)] * letters
        getattr(self.library, f"{self.first}{self.letter}{name}{self.last}")(*arguments, *lengths)

    def has(self, name: str) -> bool:
        """Whether the library has the routine ``name``, which not every LAPACK has."""
        return hasattr(self.library, f"{self.first}{self.letter}{name}{self.last}")

    def integer_of(self, value: int) -> ctypes.c_int64 | ctypes.c_int32:
        """``value`` as an integer of the library's size."""
        return (ctypes.c_int64 if self.integer is np.int64 else ctypes.c_int32)(value)

    def integers(self, count: int) -> np.ndarray:
        """``count`` zeros of the library's integer type."""
        return np.zeros(count, self.integer)


_routines = functools.cache(Routines)


def routines(*arrays: np.ndarray) -> Routines | None:
    """The routines of the arrays' common dtype; None if they have none, or the library was not found."""
    letter = _LETTERS.get(arrays[0].dtype)
    if letter is None or any(a.dtype is not arrays[0].dtype for a in arrays):
        return None
    known = _routines(letter)
    return known if known.found else None


def factor(known: Routines, columns: np.ndarray) -> tuple[np.ndarray, int]:
    """Replace the matrix whose columns are the rows of ``columns`` by its LU factors.

    Returns the pivots, and the number (from 1) of the first 0 on the diagonal of ``U``; 0 if there is none.
    """
    count, rows = columns.shape
    pivots, info = known.integers(min(rows, count)), known.integers(1)
    known.run("getrf", rows, count, columns, max(rows, 1), pivots, info)
    return pivots, int(info[0])


def solve_factored(
    known: Routines, columns: np.ndarray, pivots: np.ndarray, b: np.ndarray, *, turned: bool
) -> np.ndarray:
    """``X^T`` with ``A X = b`` (``A^T X = b`` if ``turned``), from the results of ``factor``."""
    x, info = np.array(b.T, order="C"), known.integers(1)
    size, count = b.shape
    known.run("getrs", "T" if turned else "N", size, count, columns, size, pivots, x, size, info)
    return x


def solve_triangle(known: Routines, a: np.ndarray, x: np.ndarray, *, upper: bool) -> None:
    """Replace ``x`` by ``X`` with ``A X = x``, ``a`` triangular in C or Fortran order, ``x`` in C order.

    It recurses into halves, so that most of the work is matrix products (320 x 320: 0.9 ms; OpenBLAS alone
    3.9).
    """
    size = x.shape[0]
    if size <= _BLOCK:
        _solve_block(known, a, x, upper=upper)
        return
    half = -(-size // (2 * _BLOCK)) * _BLOCK
    first, last = slice(0, half), slice(half, size)
    if upper:
        first, last = last, first
    solve_triangle(known, a[first, first], x[first], upper=upper)
    np.subtract(x[last], a[last, first] @ x[first], out=x[last])
    solve_triangle(known, a[last, last], x[last], upper=upper)


def _solve_block(known: Routines, a: np.ndarray, x: np.ndarray, *, upper: bool) -> None:
    size, count = x.shape
    by_rows = a.strides[1] == a.itemsize
    long = max(a.strides) // a.itemsize
    side = "L" if upper == by_rows else "U"
    one = np.ones(1, x.dtype)
    known.run("trsm", "R", side, "N" if by_rows else "T", "N", count, size, one, a, long, x, count)


def triangle(known: Routines, matrix: np.ndarray) -> int:
    """Replace the lower triangle of ``matrix``, in C order, by its Cholesky factor; not 0 if it has none."""
    size, info = len(matrix), known.integers(1)
    known.run("potrf", "U", size, matrix, max(size, 1), info)
    return int(info[0])


def orthogonal(known: Routines, columns: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """``Q``, with ``count`` columns, and ``R`` of the matrix whose columns are the rows of ``columns``.

    LAPACK returns blocks of reflections ``I - V T V^T`` with their triangles ``T``, and ``Q`` is computed by
    matrix products (320 x 320: 2.2 ms; ``geqrf`` and ``orgqr`` 4.2).
    """
    (width, rows), block = columns.shape, _REFLECTIONS
    inner = min(rows, width)
    block = min(block, inner)
    triangles, work = np.zeros((inner, block), columns.dtype), np.empty(block * width, columns.dtype)
    known.run("geqrt", rows, width, block, columns, rows, triangles, block, work, known.integers(1))
    matrix = columns.T
    vectors = np.tril(matrix[:, :inner], -1)
    np.fill_diagonal(vectors, 1)
    q = np.eye(rows, count, dtype=columns.dtype)
    for first in range((inner - 1) // block * block, -1, -block):
        last = min(first + block, inner)
        v, rest = vectors[first:, first:last], q[first:, first:]
        inside = np.triu(triangles[first:last, : last - first].T)
        rest -= v @ (inside @ (v.T @ rest))
    return q, np.triu(matrix[:count])


def least_squares(known: Routines, a: np.ndarray, b: np.ndarray, rcond: float) -> tuple[np.ndarray, int]:
    """The smallest ``X`` that minimises ``|A X - b|``, and ``A``'s rank, by QR with column pivoting."""
    (rows, columns), count = a.shape, b.shape[1]
    long = max(rows, columns)
    x = np.zeros((count, long), a.dtype)
    x[:, :rows] = b.T
    rank, info, order = known.integers(1), known.integers(1), known.integers(columns)
    bound, size = np.full(1, rcond, a.dtype), np.zeros(1, a.dtype)
    memory = np.array(a.T, order="C")

    def call(work: np.ndarray, length: int) -> None:
        head = (rows, columns, count, memory, rows, x, long, order, bound, rank)
        known.run("gelsy", *head, work, length, info)

    call(size, -1)
    work = np.empty(int(size[0]), a.dtype)
    call(work, work.size)
    return x[:, :columns].T, int(rank[0])
