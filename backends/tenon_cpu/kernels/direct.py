"""Kernels of small ops that call NumPy directly: these calls dominate the step of a tiny model.

The reference forwards call NumPy through a partial, a bound method and code for any array library; for arrays
of a few elements that costs more than the arithmetic. Times are for 4-element arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tenon.extend import Attr, Operand
from tenon.ops import mean as _mean
from tenon.ops import relu as _relu
from tenon.ops import sigmoid as _sigmoid
from tenon.ops import sign as _sign
from tenon.ops import split as _split
from tenon.ops import sum as _sum
from tenon.ops import sum_to as _sum_to
from tenon.ops import view as _view

_REAL = frozenset("fd")
_WIDE = frozenset("fdlqFD")
_NUMBERS = frozenset((bool, int, float, complex))
_add: Callable[..., np.ndarray] = np.add.reduce
#: Elements up to which selection by index is quicker than ``np.where``.
_FEW = 256
#: Elements from which ReLU compares with an array of zeros, and that array.
_FEW_ZEROS, _ZEROS = 1500, np.zeros(1 << 13, np.float32)
_ZERO = {c: np.zeros((), c) for c in _REAL}
_ONE = {c: np.ones((), c) for c in _REAL}


def conj(x: Operand) -> Operand:
    """The conjugate; real arrays and numbers are returned unchanged (0.1 against 0.3 us)."""
    return x.conjugate() if x.__class__ in _NUMBERS or x.dtype.kind == "c" else x


def sum_to(x: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
    """Sum to ``shape``; the input itself if it has that shape (0.1 against 0.25 us)."""
    return x if x.shape == shape else _sum_to.forward(np, x, shape=shape)


def reshape(x: np.ndarray, *, shape: Sequence[int]) -> np.ndarray:
    """``ndarray.reshape`` (0.25 against 0.4 us)."""
    return x.reshape(shape)


def view(x: np.ndarray, *, shape: Sequence[int]) -> np.ndarray:
    """Reshape without a copy: a contiguous array never needs one (0.25 against 1.6 us)."""
    return x.reshape(shape) if x.flags.c_contiguous else _view.forward(np, x, shape=shape)


def split(x: np.ndarray, *, sizes: Sequence[int], axis: int) -> tuple[np.ndarray, ...]:
    """Split along ``axis``; the index of the leading axes is built once (1.1 against 2.4 us for 4 pieces)."""
    lead, start, pieces = (slice(None),) * axis, 0, []
    for size in sizes:
        stop = start + size
        pieces.append(x[(*lead, slice(start, stop))])
        start = stop
    return tuple(pieces) if start == x.shape[axis] else _split.forward(np, x, sizes=sizes, axis=axis)


def transpose(x: np.ndarray, *, axis0: int, axis1: int) -> np.ndarray:
    """``ndarray.swapaxes``; ``.T`` of a matrix is faster (0.1 against 0.4 us)."""
    return x.T if x.ndim == 2 and axis0 != axis1 else x.swapaxes(axis0, axis1)


def permute(x: np.ndarray, *, axes: Sequence[int]) -> np.ndarray:
    """``ndarray.transpose``."""
    return x.transpose(axes)


def index(x: np.ndarray, *, key: Attr) -> np.ndarray:
    """``x[key]``."""
    return x[key]


def sum(x: np.ndarray, *, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
    """``np.add.reduce`` of dtypes that are wide enough to accumulate in; the reference for others."""
    if x.dtype.char in _WIDE:
        result = _add(x, axes, None, None, keepdims)
        return result if x.ndim < 3 or result.flags.c_contiguous else np.ascontiguousarray(result)
    return _sum.forward(np, x, axes=axes, keepdims=keepdims)


def mean(x: np.ndarray, *, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
    """``np.add.reduce`` and a division (1.6 against 3.3 us)."""
    if x.dtype.char not in _REAL or not x.size:
        return _mean.forward(np, x, axes=axes, keepdims=keepdims)
    count, shape = 1, x.shape
    for a in axes:
        count *= shape[a]
    result = _add(x, axes, None, None, keepdims) / count
    return result if x.ndim < 3 or result.flags.c_contiguous else np.ascontiguousarray(result)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """The sigmoid with one array instead of four."""
    one = _ONE.get(x.dtype.char)
    if one is None or not x.ndim:
        return _sigmoid.forward(np, x)
    result = np.negative(x)
    np.exp(result, result)
    np.add(result, one, result)
    return np.divide(one, result, result)


def relu(x: np.ndarray, *, out: np.ndarray | None = None) -> np.ndarray:
    """Maximum with a 0-d zero, as a Python 0 is converted in every call (0.3 against 0.75 us). Medium arrays
    use an array of zeros, as NumPy's maximum with a number is not vectorised (1.6 against 2.5 us on 5400
    elements). Of two zeros NumPy returns the second, which is that of ``x``, as in PyTorch."""
    char = x.dtype.char
    if char == "f" and _FEW_ZEROS < x.size <= _ZEROS.size and x.flags.c_contiguous and out is None:
        return np.maximum(_ZEROS[: x.size].reshape(x.shape), x)
    zero = _ZERO.get(char)
    if zero is not None and x.size > _ZEROS.size:
        return np.clip(x, zero, np.inf, out=out)  # clip is vectorised (32 against 98 us on 262,144)
    if zero is None:
        return _relu.forward(np, x, out=out)
    return np.maximum(zero, x, out=out)


def relu_grad(g: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Select 0 where ``out <= 0``, else ``g``, so that an infinite gradient there becomes 0 (0.7, or 1.2 if
    large, against 1.9 us)."""
    zero = _ZERO.get(g.dtype.char)
    if zero is None or out.dtype is not g.dtype:
        return np.where(np.less_equal(out, 0), g.dtype.type(0), g)
    if g.ndim and g.size < _FEW and g.shape == out.shape:
        dx = g.copy("K")
        dx[np.less_equal(out, zero)] = zero
        return dx
    return np.where(np.less_equal(out, zero), zero, g)


def sign(x: np.ndarray) -> np.ndarray:
    """The sign, with NaN replaced by 0 afterwards; for large arrays the difference of two comparisons (64
    against 108 us on 262,144 elements)."""
    zero = _ZERO.get(x.dtype.char)
    if zero is None or not x.ndim:
        return _sign.forward(np, x)
    if x.size > _FEW_ZEROS:
        above, below = np.greater(x, zero).view(np.int8), np.less(x, zero).view(np.int8)
        return np.subtract(above, below, out=above).astype(x.dtype)
    result = np.sign(x)
    result[np.not_equal(result, result)] = zero
    return result


def new_full(
    x: np.ndarray, *, shape: Sequence[int], value: complex, dtype: npt.DTypeLike | None = None
) -> np.ndarray:
    """``empty`` and ``fill`` (0.35 against 0.8 us for ``np.full``)."""
    dtype = x.dtype if dtype is None else dtype
    if value.__class__ is int and value == 0:
        return np.zeros(shape, dtype)
    result = np.empty(shape, dtype)
    result.fill(value)
    return result
