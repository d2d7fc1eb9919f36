"""Kernels that replace reference forwards on CUDA, by op name.

Most ops run the shared forwards over ``Namespace``. Here is what cannot be told apart there: indexing,
because CuPy takes indices modulo the size where NumPy and PyTorch refuse them, and products of half-width
floats, which the hardware multiplies without a detour.
"""

from __future__ import annotations

import functools
from typing import Any

from tenon.extend import Kernel
from tenon.ops import matmul as _matmul
from tenon.ops import put as _put
from tenon.ops import take as _take
from tenon_cuda.kernels.bounds import check_indices


def kernels(xp: Any) -> dict[str, Kernel]:
    """The table, over the array namespace ``xp``."""
    return {
        "take": functools.partial(take, xp),
        "put": functools.partial(put, xp),
        "matmul": functools.partial(matmul, xp),
    }


def take(xp: Any, x: Any, *indices: Any, layout: Any) -> Any:
    """Advanced indexing, after a check of the indices."""
    check_indices(xp, x, indices, layout)
    return _take.forward(xp, x, *indices, layout=layout)


def put(
    xp: Any, x: Any, y: Any, *indices: Any, layout: Any, accumulate: bool = False, out: Any = None
) -> Any:
    """Advanced assignment, after a check of the indices; it adds up in the same order in every run."""
    check_indices(xp, x, indices, layout)
    return _put.forward(xp, x, y, *indices, layout=layout, accumulate=accumulate, out=out)


def matmul(xp: Any, x: Any, y: Any) -> Any:
    """Half-width matrices are multiplied as they are (sums in float32), all else as the reference does."""
    if x.dtype.itemsize == 2 and x.dtype.kind in "fV" and x.ndim == 2 and y.ndim == 2:
        return xp.matmul(x, y)
    return _matmul.forward(xp, x, y)


__all__ = ["kernels"]
