"""Large float32 arrays filled, reversed, and made of all products of two vectors, by compiled loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.ops import mul as _mul
from tenon_cpu.jit.eager_ops.calls import FLOAT, WORTH, fits, plain, share
from tenon_cpu.jit.loops import moves
from tenon_cpu.jit.short_floats import elementwise as short

_NUMBERS = frozenset((bool, int, float))


def fill(array: Any, value: Any) -> bool:
    """Whether ``array`` is one that loops fill; then it is."""
    if array.size < WORTH or value.__class__ not in _NUMBERS or not fits(array) or not array.flags.carray:
        return False
    share(moves.fill, (array.reshape(-1), np.float32(value)), array.size, array.size)
    return True


def new_full(x: Any, *, shape: Any, value: Any) -> Any:
    """A number all over an array."""
    made = np.empty(shape, FLOAT)
    if not fill(made, value):
        made.fill(value)
    return made


def copy(x: Any, y: Any, *, out: Any) -> Any:
    """A number all over ``out``."""
    return out if fill(out, y) else NotImplemented


def flip(x: Any) -> Any:
    """Rows backwards: NumPy copies them number by number."""
    out, size = np.empty(x.shape, FLOAT), x.shape[-1]
    share(moves.reverse, (plain(x).reshape(-1, size), out.reshape(-1, size)), x.size // size, 2 * x.size)
    return out


def outer(x: Any, y: Any) -> Any:
    """Row by row, by code that has a vector's loop over one."""
    return short.elementwise(_mul, (x.reshape(-1, 1), y), {}, FLOAT, FLOAT)


__all__ = ["copy", "flip", "new_full", "outer"]
