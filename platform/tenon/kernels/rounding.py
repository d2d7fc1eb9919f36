"""Round ops on 16-bit floats once at the end, where PyTorch's single ops compute in float32: composites, and
ops of an array and a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.engine.op import Composite, Kind
from tenon.engine.types import Operand

#: A function that computes an op on arrays, with the op's attrs as keywords.
Kernel = Callable[..., Any]


def is_short(dtype: np.dtype) -> bool:
    """Whether ``dtype`` is float16 or bfloat16."""
    return bool(dtype.itemsize == 2 and dtype.kind in "fV")


def as_one(op: Composite, kernel: Kernel) -> Kernel:
    """Wrap the ``kernel`` of a composite so that 16-bit floats are rounded as by PyTorch's single op."""
    if op.widens:
        return kernel
    return _in_float32(kernel) if computes_in_float32(op) else _rounded(kernel)


def computes_in_float32(op: Composite) -> bool:
    """Whether the parts of ``op`` see float32 in place of 16-bit floats, whose sums of squares overflow."""
    return op.kind is Kind.ELEMENTWISE or op.computes_in_float32


def _in_float32(kernel: Kernel) -> Kernel:
    """Wrap ``kernel`` to compute 16-bit arguments in float32 and round the results once."""

    def call(*args: Operand, **attrs: object) -> Operand:
        dtype = getattr(args[0], "dtype", None)
        if dtype is None or not is_short(dtype):
            return kernel(*args, **attrs)
        wide = [a.astype(np.float32) if getattr(a, "dtype", None) == dtype else a for a in args]
        out = kernel(*wide, **attrs)
        if isinstance(out, tuple):
            return tuple(_rounded_to(o, dtype) for o in out)
        return _rounded_to(out, dtype)

    return call


def _rounded_to(out: Operand, dtype: np.dtype) -> Operand:
    return out.astype(dtype) if getattr(out, "dtype", dtype).kind == "f" else out


def _rounded(kernel: Kernel) -> Kernel:
    """Wrap ``kernel`` to round the results of bfloat16 arguments back: with Python numbers, NumPy computes
    them in float32."""

    def call(*args: Operand, **attrs: object) -> Operand:
        out = kernel(*args, **attrs)
        dtype = getattr(args[0], "dtype", None)
        if dtype is None or dtype.kind != "V":
            return out
        if isinstance(out, tuple):
            return tuple(o.astype(dtype) if getattr(o, "dtype", dtype).kind == "f" else o for o in out)
        return out.astype(dtype) if out.dtype.kind == "f" else out

    return call


def keeping_digits(kernel: Kernel) -> Kernel:
    """Wrap the ``kernel`` of an op of two operands (``Op.keeps_digits``) to compute 16-bit floats beside a
    number, or a 0-d array of another dtype, in float32."""

    def call(x: Operand, y: Operand, **attrs: object) -> Operand:
        own = getattr(x, "dtype", None)
        other = getattr(y, "dtype", None)
        if own is None or own is other or not is_short(own) or own == other or getattr(y, "ndim", 0):
            return kernel(x, y, **attrs)
        out = attrs.pop("out", None)
        if other is not None:
            y = y.astype(np.float32)  # an array, which may be of integers
        result = kernel(x.astype(np.float32), y, **attrs).astype(own)
        if out is None:
            return result
        out[...] = result  # type: ignore[index]
        return out

    return call
