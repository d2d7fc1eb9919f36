"""``where`` between a large array and a number, as in attention masks and gradients of clipped values.

A mask that is broadcast over leading axes is converted to bit masks once: "and" clears elements and "or"
inserts the number, in a quarter of ``np.where``'s time. With a mask of the full size the number is written
into a copy, in half of it.
"""

from __future__ import annotations

import numpy as np

from tenon.extend import Operand
from tenon_cpu.kernels.blocks import integers_of, plain
from tenon_cpu.threads import split

#: Elements from which copies and masks are faster than ``np.where``.
_SMALL = 1 << 12
_NUMBERS = frozenset((bool, int, float))


def is_supported(condition: Operand, x: Operand, y: Operand) -> bool:
    """Whether one side is a number and the other a large array, which the condition does not broadcast."""
    value, array = (x, y) if x.__class__ in _NUMBERS else (y, x)
    return bool(
        value.__class__ in _NUMBERS
        and getattr(array, "size", 0) >= _SMALL
        and condition.__class__ is np.ndarray
        and condition.dtype.char == "?"
        and plain(array)
        and _fits(condition.shape, array.shape)
    )


def where(condition: np.ndarray, x: Operand, y: Operand) -> np.ndarray:
    """Return ``np.where`` of an array and a number."""
    flipped = x.__class__ not in _NUMBERS
    value, array = (y, x) if flipped else (x, y)
    if 4 * condition.size <= array.size:
        return _by_bits(np.logical_not(condition) if flipped else condition, value, array)
    out = array.copy()
    np.copyto(out, value, where=np.logical_not(condition) if flipped else condition)
    return out


def _fits(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether ``shape`` broadcasts to exactly ``target``."""
    lead = len(target) - len(shape)
    return lead >= 0 and all(s in (1, w) for s, w in zip(shape, target[lead:], strict=True))


def _by_bits(filled: np.ndarray, value: float, array: np.ndarray) -> np.ndarray:
    out = np.empty_like(array)
    bits, out_bits = integers_of(array), integers_of(out)
    keep = np.subtract(filled, 1, dtype=bits.dtype)  # all bits set where false
    put = None
    if value != 0 or np.signbit(value):
        put = np.bitwise_and(np.invert(keep), integers_of(np.full((), value, array.dtype)))
    if keep.ndim == array.ndim and keep.shape[0] != 1:
        _select(bits, keep, put, out_bits)
        return out
    split(lambda a, b: _select(bits[a:b], keep, put, out_bits[a:b]), array.shape[0])
    return out


def _select(bits: np.ndarray, keep: np.ndarray, put: np.ndarray | None, out: np.ndarray) -> None:
    np.bitwise_and(bits, keep, out=out)
    if put is not None:
        np.bitwise_or(out, put, out=out)


__all__ = ["is_supported", "where"]
