"""Rounding of composites on 16-bit floats: as torch's single ops, which compute in float32."""

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
    """Wrap the ``kernel`` of a composite so that 16-bit floats are rounded as by torch's single op."""
    if op.widens:
        return kernel
    return _in_float32(kernel) if op.kind is Kind.ELEMENTWISE else _rounded(kernel)


def _in_float32(kernel: Kernel) -> Kernel:
    """Wrap ``kernel`` to compute 16-bit arguments in float32 and round the results once."""

    def call(*args: Operand, **attrs: Any) -> Operand:
        own = getattr(args[0], "dtype", None)
        if own is None or not is_short(own):
            return kernel(*args, **attrs)
        wide = [a.astype(np.float32) if getattr(a, "dtype", None) == own else a for a in args]
        out = kernel(*wide, **attrs)
        if isinstance(out, tuple):
            return tuple(_narrowed(o, own) for o in out)
        return _narrowed(out, own)

    return call


def _narrowed(out: Operand, own: np.dtype) -> Operand:
    return out.astype(own) if getattr(out, "dtype", own).kind == "f" else out


def _rounded(kernel: Kernel) -> Kernel:
    """Wrap ``kernel`` to round the results of bfloat16 arguments back: with Python numbers, NumPy computes
    them in float32."""

    def call(*args: Operand, **attrs: Any) -> Operand:
        out = kernel(*args, **attrs)
        own = getattr(args[0], "dtype", None)
        if own is None or own.kind != "V":
            return out
        if isinstance(out, tuple):
            return tuple(o.astype(own) if getattr(o, "dtype", own).kind == "f" else o for o in out)
        return out.astype(own) if out.dtype.kind == "f" else out

    return call
