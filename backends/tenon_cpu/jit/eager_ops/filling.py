"""Filling and reversing large float32 arrays, and outer products, by compiled loops."""

from __future__ import annotations

import numpy as np

from tenon.ops import mul as _mul
from tenon_cpu.jit.eager_ops.calls import FLOAT, MIN_ELEMENTS, fits, plain, share
from tenon_cpu.jit.loops import filling
from tenon_cpu.jit.short_floats import elementwise as short

_NUMBERS = frozenset((bool, int, float))


def fill(array: np.ndarray, value: object) -> bool:
    """Fill ``array`` with a number; return False, without filling it, where compiled loops do not pay."""
    if (
        array.size < MIN_ELEMENTS
        or value.__class__ not in _NUMBERS
        or not fits(array)
        or not array.flags.carray
    ):
        return False
    share(filling.fill, (array.reshape(-1), np.float32(value)), array.size, array.size)  # type: ignore[arg-type]
    return True


def new_full(x: np.ndarray, *, shape: tuple[int, ...], value: float) -> np.ndarray:
    """A float32 array of ``shape``, filled with ``value``."""
    out = np.empty(shape, FLOAT)
    if not fill(out, value):
        out.fill(value)
    return out


def copy(x: np.ndarray, y: object, *, out: np.ndarray) -> np.ndarray:
    """``out``, filled with the number ``y``."""
    return out if fill(out, y) else NotImplemented


def flip(x: np.ndarray) -> np.ndarray:
    """Reverse each row, which NumPy does number by number."""
    out, size = np.empty(x.shape, FLOAT), x.shape[-1]
    share(filling.reverse, (plain(x).reshape(-1, size), out.reshape(-1, size)), x.size // size, 2 * x.size)
    return out


def outer(x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """The outer product, by generated code that is vectorised along a row."""
    return short.elementwise(_mul, (x.reshape(-1, 1), y), {}, FLOAT, FLOAT)


__all__ = ["copy", "flip", "new_full", "outer"]
