"""Compiled sums over ranks, where numba is installed: one pass over all rows of a window.

NumPy needs a pass for each addition, one for the mean and one for each result row. In cache one pass is twice
as fast with 2 ranks and three times with 4; beyond it, memory bandwidth is the limit. The order of additions
is ``engine.combine``'s, a tree over the ranks, so the bits are the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

CALLS = 32
"""Reductions before numba is imported and the kernel compiled, which takes half a second."""


@functools.lru_cache(maxsize=64)
def find(size: int, dtype: np.dtype) -> Callable[..., None] | None:
    """Return ``kernel(divisor, *rows)``, which writes the divided sum of ``size`` rows into all of them.

    None for other sizes and dtypes, or without numba.
    """
    kernel = {2: _two, 3: _three, 4: _four, 8: _eight}.get(size)
    if kernel is None or dtype.char not in "fd":
        return None
    try:
        import numba
    except ImportError:
        return None
    # Not kept in numba's own cache, which runs what it finds unsigned; that saved a tenth of a second.
    compiled: Callable[..., None] = numba.njit(nogil=True, error_model="numpy")(kernel)
    return compiled


def _two(divisor: float, a: np.ndarray, b: np.ndarray) -> None:
    for i in range(a.size):
        value = (a[i] + b[i]) / divisor
        a[i] = value
        b[i] = value


def _three(divisor: float, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    for i in range(a.size):
        value = (a[i] + b[i] + c[i]) / divisor
        a[i] = value
        b[i] = value
        c[i] = value


def _four(divisor: float, a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> None:
    for i in range(a.size):
        value = ((a[i] + b[i]) + (c[i] + d[i])) / divisor
        a[i] = value
        b[i] = value
        c[i] = value
        d[i] = value


def _eight(
    divisor: float,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    d: np.ndarray,
    e: np.ndarray,
    f: np.ndarray,
    g: np.ndarray,
    h: np.ndarray,
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
