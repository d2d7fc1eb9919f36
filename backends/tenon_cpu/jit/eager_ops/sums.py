"""Sums and means of large float32 arrays, by compiled kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tenon_cpu.jit.eager_ops.calls import FLOAT, fits, plain, share
from tenon_cpu.jit.loops import sums
from tenon_cpu.jit.loops.columns import WIDE

#: Elements of a run along the last axes from which a compiled sum is faster than NumPy's.
_RUN = 32
#: Rows above which NumPy's sums, row by row in float32, lose too many digits.
_ROWS = 1024
#: The fewest columns of a compiled sum: of narrower arrays, several rows count as one.
_WIDE = 64


def _reduced(x: np.ndarray, axes: Sequence[int]) -> np.ndarray | None:
    """Sums over leading and trailing ``axes`` of ``x``, or over many rows, flat; None if NumPy is to sum."""
    if not x.ndim or not x.flags.carray:
        return None
    reduced = sorted(axes)
    rank = x.ndim
    inner = 0
    while inner < len(reduced) and reduced[-1 - inner] == rank - 1 - inner:
        inner += 1
    outer = len(reduced) - inner
    shape = x.shape
    if not inner:
        return _rows_reduced(x, reduced[0], reduced[-1] + 1) if reduced[-1] - reduced[0] < outer else None
    if reduced[:outer] != list(range(outer)):
        return None
    run = math.prod(shape[rank - inner :])
    if run < _RUN or not fits(x):
        return None
    matrix = x.reshape(math.prod(shape[:outer]), math.prod(shape[outer : rank - inner]), run)
    out = np.empty(matrix.shape[1], FLOAT)
    share(sums.sum_outer_and_inner, (matrix, out), out.size, x.size)
    return out


def _rows_reduced(x: np.ndarray, first: int, last: int) -> np.ndarray | None:
    """Sums over the axes ``first`` to ``last``, flat: of runs of rows in float32, of these in float64.

    Sums of narrow rows are quicker too (0.6 against 36 ms on ``[2000000, 2]``); NumPy adds wide ones as
    quickly.
    """
    shape = x.shape
    outer, count, width = math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:])
    if count <= _ROWS or not fits(x):
        return None
    x = x.reshape(outer, count, width)
    at_once = _ROWS if width > WIDE else max(_WIDE // width, 1)
    runs, rest = divmod(count, at_once)
    full = x[:, : count - rest]
    if width > WIDE:
        parts = np.add.reduce(full.reshape(outer, runs, at_once, width), 2)
    else:
        parts = np.empty((outer, at_once, width), np.float64)
        flat = parts.reshape(outer, at_once * width)
        share(sums.sum_rows, (plain(full).reshape(outer, runs, at_once * width), flat), outer, x.size)
    totals: np.ndarray = np.add.reduce(parts, 1, np.float64)
    if rest:
        totals += np.add.reduce(x[:, count - rest :], 1)
    return totals.astype(FLOAT).reshape(-1)


def _shaped(totals: np.ndarray, x: np.ndarray, axes: Sequence[int], keepdims: bool) -> np.ndarray:
    """Flat results of a reduction of ``x`` over ``axes`` in their shape."""
    if keepdims:
        return totals.reshape([1 if i in axes else s for i, s in enumerate(x.shape)])
    return totals.reshape([s for i, s in enumerate(x.shape) if i not in axes])


def sum(x: np.ndarray, *, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
    """The sum over leading and trailing axes, or over many rows; declines other axes."""
    totals = _reduced(x, axes)
    return NotImplemented if totals is None else _shaped(totals, x, axes, keepdims)


def mean(x: np.ndarray, *, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
    """The mean over leading and trailing axes, or over many rows; declines other axes."""
    totals = _reduced(x, axes)
    if totals is None:
        return NotImplemented
    totals /= np.float32(x.size // totals.size)
    return _shaped(totals, x, axes, keepdims)


def sum_to(x: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
    """The sum over the axes that ``shape`` lacks or has of size 1; declines where NumPy is to sum."""
    own = x.shape
    lead = len(own) - len(shape)
    axes = (*range(lead), *(i + lead for i, s in enumerate(shape) if s == 1 and own[i + lead] != 1))
    totals = _reduced(x, axes)
    return NotImplemented if totals is None else totals.reshape(shape)
