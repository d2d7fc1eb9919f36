"""Eager ``matmul`` and ``linear``: executions cached by shape and strides, bound to each call's arrays.

A call costs some 4 us beyond the product, so NumPy computes small ones, and products with very few rows or
columns, where oneDNN's copies of the matrix cost more than the product. The thresholds were measured on an
AVX-512 processor where BLAS reaches 85 % of peak and oneDNN 97 %; where BLAS does worse they are
conservative. NumPy computes float16, for which most processors have no kernel.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.cache import Cache
from tenon_cpu.onednn.descriptors import element_strides
from tenon_cpu.onednn.matmul import Product, Strided, arranged, few_rows, primitive
from tenon_cpu.onednn.primitives import Primitive, address_of

_FLOAT, _BFLOAT = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
#: Multiplications from which oneDNN is faster in float32; with a second matrix in column-major order, as a
#: layer's weight is, which BLAS copies; and in bfloat16, which NumPy converts to float32 and back.
_LEAST, _LEAST_COLUMNS, LEAST_BFLOAT = 1 << 20, 1 << 18, 1 << 15
#: Rows and columns of the result from which oneDNN is faster in float32.
_ROWS, _COLUMNS = 4, 8
_empty = np.empty


class Ready:
    """A prepared matrix product, whose operands are bound at each call."""

    __slots__ = ("_bias", "_dtype", "_execution", "_out", "_run", "_set", "_shape", "_x", "_y")

    def __init__(self, primitive: Primitive, shape: tuple[int, ...], dtype: np.dtype, bias: bool) -> None:
        arguments = {c.SRC: None, c.WEIGHTS: None, c.DST: None, **({c.BIAS: None} if bias else {})}
        execution = primitive.execution(arguments)
        self._execution, self._shape, self._dtype = execution, shape, dtype
        self._x, self._y = execution.memory(c.SRC), execution.memory(c.WEIGHTS)
        self._out = execution.memory(c.DST)
        self._bias = execution.memory(c.BIAS) if bias else None
        self._set, self._run = execution.set_handle, (execution.execute, *execution.run)

    def __call__(
        self, x: np.ndarray, y: np.ndarray, bias: np.ndarray | None = None, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the product, written to ``out`` or to a new array."""
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


def _operand(x: np.ndarray) -> Strided:
    return Strided(x.shape, element_strides(x))


def _prepared(x: np.ndarray, y: np.ndarray, bias: np.ndarray | None = None) -> Ready | None:
    """Return the execution for arrays of two or more axes; None where NumPy is to multiply."""
    width = x.itemsize
    if any(s % width for s in x.strides + y.strides) or (bias is not None and bias.strides != (width,)):
        return None
    product = arranged(_operand(x), _operand(y))
    if product is None or (x.dtype is _FLOAT and not _is_faster(product)):
        return None
    created = primitive(product, x.dtype, bias is not None)
    return None if created is None else Ready(created, product.shape, x.dtype, bias is not None)


def _is_faster(product: Product) -> bool:
    rows, columns = product.out.shape[-2:]
    return columns >= _COLUMNS and (rows >= _ROWS or few_rows(product))


_products = {_FLOAT: Cache("matmul float32"), _BFLOAT: Cache("matmul bfloat16")}
_affine = {_FLOAT: Cache("linear float32"), _BFLOAT: Cache("linear bfloat16")}
_floats = _products[_FLOAT]


def matmul_is_faster(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether oneDNN is faster: for large products in float32 or bfloat16."""
    dtype = x.dtype
    if dtype is not y.dtype or x.ndim < 2 or y.ndim < 2:
        return False
    size = x.size * y.shape[-1]
    if dtype is _FLOAT:
        return bool(size >= _LEAST or (size >= _LEAST_COLUMNS and y.strides[-2] == 4))
    return bool(dtype is _BFLOAT and size >= LEAST_BFLOAT)


def matmul(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return ``x @ y`` of arrays that ``matmul_is_faster`` accepts."""
    ready = _products[x.dtype].get((x.shape, x.strides, y.shape, y.strides), _prepared, x, y)
    return NotImplemented if ready is None else ready(x, y)


def matmul_into(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> bool:
    """Compute a large float32 ``x @ y`` into ``out``; return whether it was computed."""
    if any(array.dtype is not _FLOAT or array.ndim != 2 for array in (x, y, out)):
        return False
    if x.size * y.shape[1] < _LEAST or out.shape != (x.shape[0], y.shape[1]) or not out.flags.c_contiguous:
        return False
    ready = _floats.get((x.shape, x.strides, y.shape, y.strides), _prepared, x, y)
    if ready is None:
        return False
    ready(x, y, out=out)
    return True


def linear_is_faster(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> bool:
    """Whether oneDNN is faster for ``linear``: a product whose second matrix is in column-major order."""
    dtype = x.dtype
    if dtype is not weight.dtype or x.ndim < 2 or weight.ndim != 2:
        return False
    least = _LEAST_COLUMNS if dtype is _FLOAT else LEAST_BFLOAT
    return bool(
        (dtype is _FLOAT or dtype is _BFLOAT)
        and x.size * weight.shape[0] >= least
        and (bias is None or (bias.dtype is dtype and bias.shape == weight.shape[:1]))
    )


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Return ``x @ weight.T + bias``; the bias is added while the product is written."""
    y = weight.T
    key = (x.shape, x.strides, weight.shape, weight.strides, None if bias is None else bias.strides)
    ready = _affine[x.dtype].get(key, _prepared, x, y, bias)
    return NotImplemented if ready is None else ready(x, y, bias)


__all__ = ["linear", "linear_is_faster", "matmul", "matmul_into", "matmul_is_faster"]
