"""Elementwise ops on large float32 arrays by generated code, where NumPy has no loop of its own for them, or
takes several."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon.ops import copysign as _copysign
from tenon.ops import erf as _erf
from tenon.ops import erfc as _erfc
from tenon.ops import floor_divide as _floor_divide
from tenon.ops import leaky_relu_grad as _leaky_relu_grad
from tenon.ops import nan_to_num as _nan_to_num
from tenon.ops import remainder as _remainder
from tenon.ops import rsqrt as _rsqrt
from tenon.ops import softplus_grad as _softplus_grad
from tenon_cpu.jit import codegen_llvm, points, short
from tenon_cpu.jit.calls import FLOAT, WORTH, fits, plain, share
from tenon_cpu.kernels import direct, pointwise


def _generated(name: str, args: Any, attrs: Any) -> Any:
    """The op of large arrays; None where they are small, or there is no compiler."""
    first = args[0]
    if "out" in attrs or first.__class__ is not np.ndarray or first.size < WORTH:
        return None
    for a in args:
        if a.__class__ is np.ndarray and not (a.dtype is FLOAT and a.size >= WORTH and a.flags.aligned):
            return None
    return short.elementwise(name, args, attrs, FLOAT, FLOAT) if codegen_llvm.available() else None


def _made(name: str, kernel: Kernel, *args: Any, **attrs: Any) -> Any:
    """The op by generated code, else by ``kernel``."""
    first = args[0]
    if first.__class__ is np.ndarray and first.size < WORTH:
        return kernel(*args, **attrs)
    found = None
    if all(a.__class__ is np.ndarray for a in args):
        found = _generated(name, args, attrs)
    return kernel(*args, **attrs) if found is None else found


def _in_parts(op: Any, f: Any, *args: Any, **attrs: Any) -> Any:
    return _made(op.name, functools.partial(op.decompose, f), *args, **attrs)


def _quotients(op: Any, kernel: Any, x: Any, y: Any, out: Any) -> Any:
    """By a loop for quotients below 2**22; the reference does all others."""
    array = x if hasattr(x, "dtype") else y
    if (
        out is not None
        or array.size < WORTH
        or not fits(array)
        or any(v.dtype is not FLOAT for v in (x, y) if hasattr(v, "dtype"))
    ):
        return op.forward(np, x, y, out=out)
    shape = np.broadcast_shapes(np.shape(x), np.shape(y))
    given = [plain(np.broadcast_to(np.asarray(v, FLOAT), shape)).reshape(-1) for v in (x, y)]
    made, unusual = np.empty(shape, FLOAT), np.zeros(1, np.uint8)
    share(kernel, (*given, made.reshape(-1), unusual), made.size, 10 * made.size)
    return op.forward(np, x, y) if unusual[0] else made


def remainder(x: Any, y: Any, *, out: Any = None) -> Any:
    """Python's modulo."""
    return _quotients(_remainder, points.remainder, x, y, out)


def floor_divide(x: Any, y: Any, *, out: Any = None) -> Any:
    """The whole quotient below."""
    return _quotients(_floor_divide, points.floor_divide, x, y, out)


def pow(x: Any, y: Any, *, out: Any = None) -> Any:
    """Cubes in one pass; all else by NumPy."""
    if y.__class__ in (int, float) and y == 3 and out is None:
        found = _generated("pow", (x, 3), {})
        if found is not None:
            return found
    return pointwise.pow(x, y, out=out)


KERNELS: dict[str, Kernel] = {
    **{
        op.name: functools.partial(_made, op.name, functools.partial(op.forward, np))
        for op in (_erf, _erfc, _copysign, _rsqrt)
    },
    "pow": pow,
    "sign": functools.partial(_made, "sign", direct.sign),
    "remainder": remainder,
    "floor_divide": floor_divide,
}
COMPOSITES: dict[str, Kernel] = {
    op.name: functools.partial(_in_parts, op) for op in (_leaky_relu_grad, _softplus_grad, _nan_to_num)
}

__all__ = ["COMPOSITES", "KERNELS"]
