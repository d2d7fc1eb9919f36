"""Dtype queries and conversions that work on arrays, avals and tensors alike, for use in rules."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from tenon.dtypes import FROM_NUMPY, scalar_name
from tenon.engine.types import Array, ArrayNamespace, Attr, Operand, OpNamespace
from tenon.errors import DivisionByZeroError
from tenon.kernels import rounding

_FLOAT32 = np.dtype(np.float32)
#: An op's ``forward(self, xp, *operands, **attrs)``.
Forward: TypeAlias = Callable[..., Operand]


def dtype_of(x: Operand) -> np.dtype:
    """The NumPy dtype of an array, an aval or a tensor."""
    own = x.dtype
    dtype: np.dtype = getattr(own, "numpy", own)
    return dtype


def is_complex(x: Operand) -> bool:
    """Whether ``x`` has a complex dtype."""
    return dtype_of(x).kind == "c"


def real_dtype(x: Operand) -> np.dtype:
    """The dtype of the real part of ``x``."""
    dtype = dtype_of(x)
    return np.empty(0, dtype).real.dtype if dtype.kind == "c" else dtype


def is_floating(x: Operand) -> bool:
    """Whether ``x`` has a real floating dtype."""
    return dtype_of(x).kind in "fV"


def is_short(x: Operand) -> bool:
    """Whether ``x`` is float16 or bfloat16."""
    return rounding.is_short(dtype_of(x))


def title_of(x: Operand) -> str:
    """The dtype's name in PyTorch's error messages: ``Float``, ``Long``."""
    return scalar_name(FROM_NUMPY[dtype_of(x)])


def widened(f: OpNamespace, *values: Operand) -> tuple[Operand, ...]:
    """Cast 16-bit floating ``values`` to float32; the others (and None) are returned unchanged."""
    return tuple(f.cast(v, dtype=_FLOAT32) if v is not None and is_short(v) else v for v in values)


def matching(f: OpNamespace, result: Operand, x: Operand) -> Operand:
    """Cast ``result`` to the dtype of ``x`` if it differs."""
    return result if dtype_of(result) == dtype_of(x) else f.cast(result, dtype=dtype_of(x))


def in_float32(forward: Forward) -> Forward:
    """Make a ``forward`` compute 16-bit floats in float32 and round its result once.

    Running sums in 16 bits stop growing: 256 + 1 is 256 in bfloat16, and 2048 + 1 is 2048 in float16.
    """

    @functools.wraps(forward)
    def call(self: object, xp: ArrayNamespace, *args: Operand, **attrs: Attr) -> Operand:
        kind = args[0].dtype
        if not rounding.is_short(kind):
            return forward(self, xp, *args, **attrs)
        wide = [a.astype(_FLOAT32) if getattr(a, "dtype", None) == kind else a for a in args]
        return forward(self, xp, *wide, **attrs).astype(kind)

    return call


def refuse_zero(xp: ArrayNamespace, x: Array, y: Array) -> None:
    """Raise DivisionByZeroError if an integer divisor contains 0."""
    kind = getattr(y, "dtype", getattr(x, "dtype", None))
    if kind is not None and kind.kind in "iu" and bool(xp.any(xp.equal(y, 0))):
        raise DivisionByZeroError("ZeroDivisionError: integer division by zero; check the divisor.")
