"""CuPy as the shared forwards expect it: NumPy's names with NumPy's results.

Names that are not defined here are CuPy's own. The others CuPy (14.2) lacks or computes differently:
``where`` and ``round`` return float32 for bfloat16, batched products and sorting do not support bfloat16,
maximum and minimum have no reductions, sorting and scans fail on empty arrays, and a singular matrix is not
an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from tenon.extend import Array, ArrayNamespace, Operand
from tenon_cuda.ufuncs import Ufunc

#: Ufuncs whose methods the forwards use, and the function that reduces by them (None: nothing reduces by it).
_REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "amax", "minimum": "amin", "logaddexp": None}


class Namespace:
    """``library``, which is CuPy or has its names, with the functions that it lacks."""

    def __init__(
        self,
        library: ArrayNamespace,
        linalg_errors: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
    ) -> None:
        self.library = library
        self.linalg = Linalg(library.linalg, linalg_errors)
        self.lib = library.lib
        for name, reduction in _REDUCTIONS.items():
            setattr(self, name, Ufunc(self, getattr(library, name), reduction))

    # A function, a dtype or another name of the library.
    def __getattr__(self, name: str) -> Any:
        value = getattr(self.library, name)
        setattr(self, name, value)
        return value

    def where(self, condition: Array, x: Operand, y: Operand) -> Array:
        """``numpy.where``; bfloat16, which CuPy would convert to float32, is selected by its bits."""
        dtypes = {v.dtype for v in (x, y) if hasattr(v, "dtype")}
        narrow = dtypes.pop() if len(dtypes) == 1 else None
        if narrow is None or narrow.kind != "V":
            return self.library.where(condition, x, y)
        return self.library.where(condition, _bits(x, narrow), _bits(y, narrow)).view(narrow)

    def round(self, x: Array, decimals: int = 0, out: Array | None = None) -> Array:
        """Round to ``decimals`` digits, keeping the dtype of ``x``."""
        if x.dtype.kind != "V":
            return self.library.round(x, decimals, out=out)
        result = self.library.round(x.astype(np.float32), decimals).astype(x.dtype)
        if out is None:
            return result
        out[...] = result
        return out

    def matmul(self, x: Array, y: Array, out: Array | None = None) -> Array:
        """Matrix product; bfloat16 in batches is multiplied in float32."""
        if x.dtype.kind == "V" and max(x.ndim, y.ndim) > 2:
            result = self.library.matmul(x.astype(np.float32), y.astype(np.float32)).astype(x.dtype)
            if out is None:
                return result
            out[...] = result
            return out
        return self.library.matmul(x, y) if out is None else self.library.matmul(x, y, out=out)

    def any(self, x: Array, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
        """Whether any element over ``axis`` is non-zero."""
        return x.astype(bool) if axis == () else self.library.any(_plain(x), axis=axis, keepdims=keepdims)

    def all(self, x: Array, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
        """Whether all elements over ``axis`` are non-zero."""
        return x.astype(bool) if axis == () else self.library.all(_plain(x), axis=axis, keepdims=keepdims)

    def argmax(self, x: Array, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
        """Index of the first largest element."""
        return self.library.argmax(_plain(x), axis=axis, keepdims=keepdims)

    def argmin(self, x: Array, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
        """Index of the first smallest element."""
        return self.library.argmin(_plain(x), axis=axis, keepdims=keepdims)

    def argsort(self, x: Array, axis: int = -1, kind: str | None = None) -> Array:
        """Indices that sort ``x`` along ``axis``; the sort is stable for every ``kind``."""
        if x.size == 0 or x.shape[axis] == 1:
            return self.library.zeros(x.shape, np.int64)
        return self.library.argsort(_plain(x), axis=axis)

    def searchsorted(self, x: Array, values: Array, side: str = "left") -> Array:
        """Insertion points of ``values`` into the sorted vector ``x``."""
        return self.library.searchsorted(_plain(x), _plain(values), side=side)

    def cumsum(self, x: Array, axis: int, dtype: np.dtype | None = None) -> Array:
        """Cumulative sums; 16-bit floats are added in float32."""
        return self._scan(self.library.cumsum, x, axis, dtype)

    def cumprod(self, x: Array, axis: int, dtype: np.dtype | None = None) -> Array:
        """Cumulative products; 16-bit floats are multiplied in float32."""
        return self._scan(self.library.cumprod, x, axis, dtype)

    def _scan(self, function: Callable[..., Array], x: Array, axis: int, dtype: np.dtype | None) -> Array:
        if x.size == 0:
            return x.astype(dtype or x.dtype)
        if x.dtype.itemsize == 2 and x.dtype.kind in "fV":
            return function(x.astype(np.float32), axis=axis).astype(dtype or x.dtype)
        return function(x, axis=axis, dtype=dtype)


class Linalg:
    """``cupy.linalg``, with errors where LAPACK would report one."""

    def __init__(self, library: ArrayNamespace, errors: Callable[[], AbstractContextManager[object]]) -> None:
        self._library = library
        self._errors = errors

    def __getattr__(self, name: str) -> Callable[..., Array]:
        function = getattr(self._library, name)

        def checked(*args: object, **kwargs: object) -> Array:
            with self._errors():
                return function(*args, **kwargs)

        setattr(self, name, checked)
        return checked


def _plain(x: Array) -> Array:
    """``x``, converted to float32 if it is bfloat16."""
    return x.astype(np.float32) if x.dtype.kind == "V" else x


def _bits(value: Operand, narrow: np.dtype) -> Array:
    """The bits of an array or a number of the dtype ``narrow``, as uint16."""
    return (value if hasattr(value, "view") else narrow.type(value)).view(np.uint16)
