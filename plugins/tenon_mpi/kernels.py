"""Compiled sums over ranks, where numba is installed: one pass over all rows of a window.

NumPy needs a pass for each addition, one for the mean and one for each result row. In cache one pass is twice
as fast with 2 ranks and three times with 4; beyond it, memory bandwidth is the limit. The order of additions
is ``engine.combine``'s, a tree over the ranks, so the bits are the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

CALLS = 32
"""Reductions before numba is imported and the kernel compiled, which takes half a second."""
Array = np.ndarray[Any, Any]


@functools.lru_cache(maxsize=64)
def find(size: int, dtype: np.dtype[Any]) -> Callable[..., None] | None:
    """The kernel ``kernel(divisor, *rows)`` that writes the divided sum of ``size`` rows into all of them.

    None where there is none: other sizes and dtypes, or no numba.
    """
    kernel = {2: _two, 3: _three, 4: _four, 8: _eight}.get(size)
    if kernel is None or dtype.char not in "fd":
        return None
    try:
        import numba
    except ImportError:
        return None
    compile_it: Callable[..., Any] = numba.njit(nogil=True, cache=True, error_model="numpy")
    compiled: Callable[..., None] = compile_it(kernel)
    return compiled


def _two(divisor: Any, a: Array, b: Array) -> None:
    for i in range(a.size):
        value = (a[i] + b[i]) / divisor
        a[i] = value
        b[i] = value


def _three(divisor: Any, a: Array, b: Array, c: Array) -> None:
    for i in range(a.size):
        value = (a[i] + b[i] + c[i]) / divisor
        a[i] = value
        b[i] = value
        c[i] = value


def _four(divisor: Any, a: Array, b: Array, c: Array, d: Array) -> None:
    for i in range(a.size):
        value = ((a[i] + b[i]) + (c[i] + d[i])) / divisor
        a[i] = value
        b[i] = value
        c[i] = value
        d[i] = value


def _eight(
    divisor: Any, a: Array, b: Array, c: Array, d: Array, e: Array, f: Array, g: Array, h: Array
) -> None:
    for i in range(a.size):
        low = (a[i] + b[i]) + (c[i] + d[i])
        value = (low + ((e[i] + f[i]) + (g[i] + h[i]))) / divisor
        a[i] = value
        b[i] = value
        c[i] = value
        d[i] = value
        e[i] = value
        f[i] = value
        g[i] = value
        h[i] = value


__all__ = ["find"]
