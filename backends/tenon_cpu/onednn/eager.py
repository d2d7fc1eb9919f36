"""Eager ``matmul`` and ``linear``: executions kept by shape and strides, pointed at each call's arrays.

A call costs some 4 us beyond the product, so that small ones stay with NumPy, and so do products with very
few rows or columns, where oneDNN's copies of the matrix cost more than the product. The bounds are those of
an AVX-512 processor on which BLAS reaches 85 % of the peak and oneDNN 97 %; where BLAS does worse they are on
the safe side. float16 stays with NumPy: most processors have no kernel for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tenon.extend import Kernel
from tenon_cpu.kernels import contraction
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.cache import Cache
from tenon_cpu.onednn.descriptors import element_strides
from tenon_cpu.onednn.matmul import Operand, Product, arranged, few_rows, primitive
from tenon_cpu.onednn.primitives import Primitive, address_of

_FLOAT, _BFLOAT = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
#: Multiplications from which oneDNN pays in float32; for a second matrix that lies by columns, as a layer's
#: weight does, of which BLAS makes a copy; and in bfloat16, which NumPy converts there and back.
_LEAST, _LEAST_COLUMNS, _LEAST_BFLOAT = 1 << 20, 1 << 18, 1 << 15
#: Numbers of one operand times those of the other below which NumPy multiplies at once.
_FEW = 1 << 16
#: Rows and columns of the result from which it pays in float32.
_ROWS, _COLUMNS = 4, 8
_numpy_matmul, _numpy_linear = contraction.matmul, contraction.linear
_empty = np.empty


class Ready:
    """An execution whose operands are given at each call."""

    __slots__ = ("_bias", "_dtype", "_execution", "_out", "_run", "_set", "_shape", "_x", "_y")

    def __init__(self, made: Primitive, shape: tuple[int, ...], dtype: Any, bias: bool) -> None:
        places = {c.SRC: None, c.WEIGHTS: None, c.DST: None, **({c.BIAS: None} if bias else {})}
        execution = made.execution(places)
        self._execution, self._shape, self._dtype = execution, shape, dtype
        self._x, self._y = execution.memory(c.SRC), execution.memory(c.WEIGHTS)
        self._out = execution.memory(c.DST)
        self._bias = execution.memory(c.BIAS) if bias else None
        self._set, self._run = execution.set_handle, (execution.execute, *execution.run)

    def __call__(self, x: Any, y: Any, bias: Any = None, out: Any = None) -> Any:
        """The product, in a new array unless ``out`` is one of its shape."""
        point = self._set
        if out is None:
            out = _empty(self._shape, self._dtype)
        point(self._x, address_of(x))
        point(self._y, address_of(y))
        point(self._out, address_of(out))
        if bias is not None:
            point(self._bias, address_of(bias))
        execute, handle, stream, count, arguments = self._run
        if status := execute(handle, stream, count, arguments):
            raise self._execution.failed(status)
        return out


def _operand(x: Any) -> Operand:
    return Operand(x.shape, element_strides(x))


def _prepared(x: Any, y: Any, bias: Any = None) -> Ready | None:
    """For arrays of two or more axes, or None where NumPy is to multiply."""
    width = x.itemsize
    if any(s % width for s in x.strides + y.strides) or (bias is not None and bias.strides != (width,)):
        return None
    product = arranged(_operand(x), _operand(y))
    if product is None or (x.dtype is _FLOAT and not _pays(product)):
        return None
    made = primitive(product, x.dtype, bias is not None)
    return None if made is None else Ready(made, product.shape, x.dtype, bias is not None)


def _pays(product: Product) -> bool:
    rows, columns = product.out.shape[-2:]
    return columns >= _COLUMNS and (rows >= _ROWS or few_rows(product))


_products = {_FLOAT: Cache("matmul float32"), _BFLOAT: Cache("matmul bfloat16")}
_affine = {_FLOAT: Cache("linear float32"), _BFLOAT: Cache("linear bfloat16")}
_floats, _affine_floats = _products[_FLOAT], _affine[_FLOAT]


def matmul(x: Any, y: Any) -> Any:
    """oneDNN for large products of float32 or bfloat16, the NumPy kernel for others."""
    dtype = x.dtype
    if x.size * y.size < _FEW and dtype is _FLOAT is y.dtype and 0 < x.ndim < 3 and 0 < y.ndim < 3:
        return x.dot(y)  # what the calls below come to: 0.5 us less
    if dtype is not y.dtype or x.ndim < 2 or y.ndim < 2:
        return _numpy_matmul(x, y)
    if dtype is _FLOAT:
        if (size := x.size * y.shape[-1]) < _LEAST and (size < _LEAST_COLUMNS or y.strides[-2] != 4):
            return _numpy_matmul(x, y)
        cache = _floats
    elif dtype is _BFLOAT and x.size * y.shape[-1] >= _LEAST_BFLOAT:
        cache = _products[_BFLOAT]
    else:
        return _numpy_matmul(x, y)
    ready = cache.get((x.shape, x.strides, y.shape, y.strides), _prepared, x, y)
    return _numpy_matmul(x, y) if ready is None else ready(x, y)


def matmul_into(x: Any, y: Any, out: Any) -> bool:
    """Large products of float32 matrices; False: not made."""
    if any(array.dtype is not _FLOAT or array.ndim != 2 for array in (x, y, out)):
        return False
    if x.size * y.shape[1] < _LEAST or out.shape != (x.shape[0], y.shape[1]) or not out.flags.c_contiguous:
        return False
    ready = _floats.get((x.shape, x.strides, y.shape, y.strides), _prepared, x, y)
    if ready is None:
        return False
    ready(x, y, out=out)
    return True


def linear(f: Any, x: Any, weight: Any, bias: Any) -> Any:
    """The bias is added while the product is written."""
    dtype = x.dtype
    if dtype is not weight.dtype or x.ndim < 2 or weight.ndim != 2:
        return _numpy_linear(f, x, weight, bias)
    if dtype is _FLOAT:
        if x.size * weight.shape[0] < _LEAST_COLUMNS:
            return _numpy_linear(f, x, weight, bias)
        cache = _affine_floats
    elif dtype is _BFLOAT and x.size * weight.shape[0] >= _LEAST_BFLOAT:
        cache = _affine[_BFLOAT]
    else:
        return _numpy_linear(f, x, weight, bias)
    if bias is not None and (bias.dtype is not dtype or bias.shape != weight.shape[:1]):
        return _numpy_linear(f, x, weight, bias)
    y = weight.T
    key = (x.shape, x.strides, weight.shape, weight.strides, None if bias is None else bias.strides)
    ready = cache.get(key, _prepared, x, y, bias)
    return _numpy_linear(f, x, weight, bias) if ready is None else ready(x, y, bias)


KERNELS: dict[str, Kernel] = {"matmul": matmul}
COMPOSITES: dict[str, Callable[..., Any]] = {"linear": linear}
