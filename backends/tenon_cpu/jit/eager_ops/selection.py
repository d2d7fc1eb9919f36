"""``where`` on large float32 arrays, by compiled kernels."""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.eager_ops.calls import FLOAT, MIN_ELEMENTS, fits, plain, share
from tenon_cpu.jit.loops import selection

_NUMBERS = frozenset((bool, int, float))


def is_supported(condition: np.ndarray, x: np.ndarray | float, y: np.ndarray | float) -> bool:
    """Whether ``where`` below supports the call: large float32 arrays of one shape, or one and a number."""
    one, other = x.__class__ in _NUMBERS, y.__class__ in _NUMBERS
    array = y if one else x
    if (
        one is other is True
        or condition.__class__ is not np.ndarray
        or condition.dtype.char != "?"
        or not isinstance(array, np.ndarray)
        or array.size < MIN_ELEMENTS
        or not fits(array)
    ):
        return False
    if not (one or other):
        return isinstance(y, np.ndarray) and condition.shape == array.shape == y.shape and fits(y)
    trailing = _trailing(condition.shape)
    return condition.ndim <= array.ndim and trailing == array.shape[array.ndim - len(trailing) :]


def _trailing(shape: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` without leading axes of size 1."""
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape


def where(condition: np.ndarray, x: np.ndarray | float, y: np.ndarray | float) -> np.ndarray:
    """Select from arrays of one shape, or from one and a number; ``condition`` may lack leading axes then."""
    if not isinstance(y, np.ndarray):
        return _put(condition, x, y, 1) if isinstance(x, np.ndarray) else NotImplemented
    if not isinstance(x, np.ndarray):
        return _put(condition, y, x, 0)
    out = np.empty(x.shape, FLOAT)
    arrays = tuple(plain(a).reshape(-1) for a in (condition.view(np.uint8), x, y, out))
    share(selection.choose, arrays, x.size, 2 * x.size)
    return out


def _put(condition: np.ndarray, x: np.ndarray, number: float, unless: int) -> np.ndarray:
    """``x``, but ``number`` where ``condition`` holds; with 1 for ``unless``, where it does not hold."""
    value, flipped = np.float32(number), np.uint8(unless)
    gates, x = plain(condition.view(np.uint8)).reshape(-1), plain(x)
    out, step = np.empty(x.shape, FLOAT), gates.size
    if step == x.size:
        share(selection.put, (gates, flipped, value, x.reshape(-1), out.reshape(-1)), step, 2 * step)
    else:
        matrices = (x.reshape(-1, step), out.reshape(-1, step))
        share(selection.put_rows, (gates, flipped, value, *matrices), x.size // step, 2 * x.size)
    return out
