"""LAPACK's and BLAS's routines that NumPy has no function for, in the OpenBLAS that NumPy loaded.

LU factors that are kept for a second solution, Cholesky's without a matrix turned around, ``Q`` and ``R`` by
blocks, solutions with triangles, least squares by QR. Matrices are float32 or float64. A matrix by rows is
its transpose by columns, which is how these routines read memory.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from tenon_cpu.threads import loaded_libraries

#: How OpenBLAS's names begin and end, and the integers that go with them.
_NAMINGS = (
    ("scipy_", "_64_", np.int64),
    ("scipy_", "_", np.int32),
    ("", "_64_", np.int64),
    ("", "_", np.int32),
)
#: Rows that BLAS solves with a triangle by itself.
_BLOCK = 64
#: Reflections of a block of ``Q``.
_REFLECTIONS = 32
_LETTERS = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}


class Routines:
    """Routines of one dtype by name; ``found`` says whether there are any."""

    def __init__(self, letter: str) -> None:
        self.letter, self.found = letter, False
        for path in loaded_libraries("openblas"):
            library = ctypes.CDLL(path)
            for first, last, integer in _NAMINGS:
                if hasattr(library, f"{first}{letter}getrf{last}"):
                    self.library, self.first, self.last, self.integer = library, first, last, integer
                    self.found = True
                    return

    def run(self, name: str, *args: Any) -> None:
        """Letters, whole numbers and arrays as Fortran takes them: by address, lengths of letters behind."""
        held: list[Any] = []
        letters = 0
        for a in args:
            if a.__class__ is str:
                held.append(ctypes.c_char_p(a.encode()))
                letters += 1
            elif a.__class__ is int:
                held.append(ctypes.byref(self.integer_of(a)))
            else:
                held.append(ctypes.c_void_p(a.ctypes.data))
        lengths = [ctypes.c_size_t(1)] * letters
        getattr(self.library, f"{self.first}{self.letter}{name}{self.last}")(*held, *lengths)

    def has(self, name: str) -> bool:
        """Whether the library has a routine that not every LAPACK has."""
        return hasattr(self.library, f"{self.first}{self.letter}{name}{self.last}")

    def integer_of(self, value: int) -> Any:
        """``value`` in the library's size."""
        return (ctypes.c_int64 if self.integer is np.int64 else ctypes.c_int32)(value)

    def integers(self, count: int) -> Any:
        """Zeros in the library's size."""
        return np.zeros(count, self.integer)


@functools.cache
def _made(letter: str) -> Routines:
    return Routines(letter)


def routines(*arrays: Any) -> Routines | None:
    """Those of the arrays' common dtype; None where there are none."""
    letter = _LETTERS.get(arrays[0].dtype)
    if letter is None or any(a.dtype is not arrays[0].dtype for a in arrays):
        return None
    made = _made(letter)
    return made if made.found else None


def factor(known: Routines, columns: Any) -> tuple[Any, int]:
    """Pivots, and where ``U`` is 0; the factors replace the matrix whose columns are ``columns``' rows."""
    count, rows = columns.shape
    pivots, info = known.integers(min(rows, count)), known.integers(1)
    known.run("getrf", rows, count, columns, max(rows, 1), pivots, info)
    return pivots, int(info[0])


def solve_factored(known: Routines, columns: Any, pivots: Any, b: Any, *, turned: bool) -> Any:
    """``X`` of ``A X = b`` (``A^T X = b`` if ``turned``) from what ``factor`` left, as ``b.T`` by rows."""
    x, info = np.array(b.T, order="C"), known.integers(1)
    size, count = b.shape
    known.run("getrs", "T" if turned else "N", size, count, columns, size, pivots, x, size, info)
    return x


def solve_triangle(known: Routines, a: Any, x: Any, *, upper: bool) -> None:
    """``x`` becomes ``X`` of ``A X = x``; both by rows, or ``a`` the transpose of such.

    Half after half, so that most of it is products of matrices (320 x 320: 0.9 ms; OpenBLAS alone 3.9).
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


def _solve_block(known: Routines, a: Any, x: Any, *, upper: bool) -> None:
    size, count = x.shape
    by_rows = a.strides[1] == a.itemsize
    long = max(a.strides) // a.itemsize
    side = "L" if upper == by_rows else "U"
    one = np.ones(1, x.dtype)
    known.run("trsm", "R", side, "N" if by_rows else "T", "N", count, size, one, a, long, x, count)


def triangle(known: Routines, matrix: Any) -> int:
    """The lower triangle of ``matrix``, by rows, becomes that of its Cholesky factor; not 0 where it has
    none."""
    size, info = len(matrix), known.integers(1)
    known.run("potrf", "U", size, matrix, max(size, 1), info)
    return int(info[0])


def orthogonal(known: Routines, columns: Any, count: int) -> tuple[Any, Any]:
    """``Q``, with ``count`` columns, and ``R`` of the matrix whose columns are ``columns``' rows.

    Reflections come in blocks with their triangles, ``I - V T V^T``, so that ``Q`` is products of matrices
    (320 x 320: 2.2 ms; ``geqrf`` and ``orgqr`` 4.2).
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


def least_squares(known: Routines, a: Any, b: Any, rcond: float) -> tuple[Any, int]:
    """The smallest ``X`` with the least ``|A X - b|``, and ``A``'s rank, by QR with columns exchanged."""
    (rows, columns), count = a.shape, b.shape[1]
    long = max(rows, columns)
    x = np.zeros((count, long), a.dtype)
    x[:, :rows] = b.T
    rank, info, order = known.integers(1), known.integers(1), known.integers(columns)
    bound, size = np.full(1, rcond, a.dtype), np.zeros(1, a.dtype)
    memory = np.array(a.T, order="C")

    def call(work: Any, length: int) -> None:
        head = (rows, columns, count, memory, rows, x, long, order, bound, rank, work, length, info)
        known.run("gelsy", *head)

    call(size, -1)
    work = np.empty(int(size[0]), a.dtype)
    call(work, work.size)
    return x[:, :columns].T, int(rank[0])
