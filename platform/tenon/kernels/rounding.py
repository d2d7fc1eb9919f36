"""Rounding of composites on 16-bit floats: as torch's single ops, which compute in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.engine.op import Composite, Kind


def is_short(dtype: Any) -> bool:
    """Whether ``dtype`` is float16 or bfloat16."""
    return bool(dtype.itemsize == 2 and dtype.kind in "fV")


def as_one(op: Composite, kernel: Any) -> Any:
    """Wrap the ``kernel`` of a composite so that 16-bit floats are rounded as by torch's single op."""
    if op.widens:
        return kernel
    return _in_float32(kernel) if op.kind is Kind.ELEMENTWISE else _rounded(kernel)


def _in_float32(kernel: Any) -> Any:
    """Wrap ``kernel`` to compute 16-bit arguments in float32 and round the results once."""

    def call(*args: Any, **attrs: Any) -> Any:
        own = getattr(args[0], "dtype", None)
        if own is None or not is_short(own):
            return kernel(*args, **attrs)
        wide = [a.astype(np.float32) if getattr(a, "dtype", None) == own else a for a in args]
        out = kernel(*wide, **attrs)
        if isinstance(out, tuple):
            return tuple(_narrowed(o, own) for o in out)
        return _narrowed(out, own)

    return call


def _narrowed(out: Any, own: Any) -> Any:
    return out.astype(own) if getattr(out, "dtype", own).kind == "f" else out


def _rounded(kernel: Any) -> Any:
    """Wrap ``kernel`` to round the results of bfloat16 arguments back: with Python numbers, NumPy computes
    them in float32."""

    def call(*args: Any, **attrs: Any) -> Any:
        out = kernel(*args, **attrs)
        own = getattr(args[0], "dtype", None)
        if own is None or own.kind != "V":
            return out
        if isinstance(out, tuple):
            return tuple(o.astype(own) if getattr(o, "dtype", own).kind == "f" else o for o in out)
        return out.astype(own) if out.dtype.kind == "f" else out

    return call
