"""Large float32 arrays filled, reversed, and made of all products of two vectors, by compiled loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon.ops import copy as _copy
from tenon.ops import flip as _flip
from tenon.ops import mul as _mul
from tenon.ops import outer as _outer
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.eager_ops.calls import FLOAT, WORTH, fits, plain, share
from tenon_cpu.jit.loops import moves
from tenon_cpu.jit.short_floats import elementwise as short
from tenon_cpu.kernels import direct

_NUMBERS = frozenset((bool, int, float))


def _fill(array: Any, value: Any) -> bool:
    """Whether ``array`` is one that loops fill; then it is."""
    if array.size < WORTH or value.__class__ not in _NUMBERS or not fits(array) or not array.flags.carray:
        return False
    share(moves.fill, (array.reshape(-1), np.float32(value)), array.size, array.size)
    return True


def new_full(x: Any, *, shape: Any, value: Any, dtype: Any = None) -> Any:
    """A number all over an array."""
    if (x.dtype if dtype is None else dtype) is not FLOAT or (value.__class__ is int and value == 0):
        return direct.new_full(x, shape=shape, value=value, dtype=dtype)
    made = np.empty(shape, FLOAT)
    if not _fill(made, value):
        made.fill(value)
    return made


def copy(x: Any, y: Any, *, out: Any = None) -> Any:
    """A number all over ``out``; all else by NumPy."""
    return out if out is not None and _fill(out, y) else _copy.forward(np, x, y, out=out)


def flip(x: Any, *, axes: Any) -> Any:
    """Rows backwards: NumPy copies them number by number."""
    if tuple(axes) != (x.ndim - 1,) or x.size < WORTH or not fits(x):
        return _flip.forward(np, x, axes=axes)
    out, size = np.empty(x.shape, FLOAT), x.shape[-1]
    share(moves.reverse, (plain(x).reshape(-1, size), out.reshape(-1, size)), x.size // size, 2 * x.size)
    return out


def outer(f: Any, x: Any, y: Any) -> Any:
    """Row by row, by code that has a vector's loop over one."""
    if math.prod((*x.shape, *y.shape)) < WORTH or not llvm.available():
        return _outer.decompose(f, x, y)
    if not (x.dtype is y.dtype is FLOAT and x.flags.carray and y.flags.carray):
        return _outer.decompose(f, x, y)
    return short.elementwise(_mul, (x.reshape(-1, 1), y), {}, FLOAT, FLOAT)


KERNELS: dict[str, Kernel] = {"new_full": new_full, "copy": copy, "flip": flip}
COMPOSITES: dict[str, Kernel] = {"outer": outer}

__all__ = ["COMPOSITES", "KERNELS"]
