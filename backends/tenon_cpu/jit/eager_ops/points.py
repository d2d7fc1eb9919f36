"""Elementwise ops on large float32 arrays by generated code, where NumPy has no loop of its own for them, or
takes several."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenon.extend import Kernel, Op
from tenon.ops import acos as _acos
from tenon.ops import asin as _asin
from tenon.ops import atan as _atan
from tenon.ops import atan2 as _atan2
from tenon.ops import atanh as _atanh
from tenon.ops import copysign as _copysign
from tenon.ops import cosh as _cosh
from tenon.ops import digamma as _digamma
from tenon.ops import erf as _erf
from tenon.ops import erfc as _erfc
from tenon.ops import exp2 as _exp2
from tenon.ops import expm1 as _expm1
from tenon.ops import floor_divide as _floor_divide
from tenon.ops import fmod as _fmod
from tenon.ops import hypot as _hypot
from tenon.ops import leaky_relu_grad as _leaky_relu_grad
from tenon.ops import lgamma as _lgamma
from tenon.ops import log1p as _log1p
from tenon.ops import log2 as _log2
from tenon.ops import log10 as _log10
from tenon.ops import logaddexp as _logaddexp
from tenon.ops import nan_to_num as _nan_to_num
from tenon.ops import polygamma as _polygamma
from tenon.ops import pow as _pow
from tenon.ops import remainder as _remainder
from tenon.ops import rsqrt as _rsqrt
from tenon.ops import sigmoid as _sigmoid
from tenon.ops import sign as _sign
from tenon.ops import sinh as _sinh
from tenon.ops import softplus_grad as _softplus_grad
from tenon.ops import tan as _tan
from tenon.ops import tanh as _tanh
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.eager_ops.calls import FLOAT, WORTH, aligned, fits, plain, share
from tenon_cpu.jit.loops import gamma, points
from tenon_cpu.jit.short_floats import elementwise as short
from tenon_cpu.kernels import direct, pointwise

_BOOL = np.dtype(np.bool_)


def _by_code(op: Op, args: Any, attrs: Any) -> Any:
    """The op of large arrays; None where they are small, or there is no compiler."""
    first, out = args[0], attrs.get("out")
    if first.__class__ is not np.ndarray or first.size < WORTH:
        return None
    if out is not None and not (out is first and out.flags.carray):
        return None
    for a in args:
        if a.__class__ is np.ndarray and not (a.dtype is FLOAT and a.size >= WORTH and a.flags.aligned):
            return None
    if not llvm.available():
        return None
    options = {name: value for name, value in attrs.items() if name != "out"}
    return short.elementwise(op, args, options, FLOAT, _BOOL if op.boolean else FLOAT, out)


def generated(op: Op, kernel: Kernel, *args: Any, **attrs: Any) -> Any:
    """The op by generated code, else by ``kernel``."""
    first = args[0]
    if first.__class__ is np.ndarray and first.size < WORTH:
        return kernel(*args, **attrs)
    found = None
    if all(a.__class__ is np.ndarray for a in args):
        found = _by_code(op, args, attrs)
    return kernel(*args, **attrs) if found is None else found


def _in_parts(op: Any, f: Any, *args: Any, **attrs: Any) -> Any:
    return generated(op, functools.partial(op.decompose, f), *args, **attrs)


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


def fmod(x: Any, y: Any, *, out: Any = None) -> Any:
    """C's modulo."""
    return _quotients(_fmod, points.fmod, x, y, out)


def tan(x: Any, *, out: Any = None) -> Any:
    """By a loop for what is below 2**20; NumPy does all others."""
    if out is not None or x.__class__ is not np.ndarray or x.size < WORTH or not fits(x):
        return np.tan(x, out=out)
    (x,), back = aligned(x)
    made, unusual = np.empty_like(x), np.zeros(1, np.uint8)
    share(points.tan, (x.reshape(-1), made.reshape(-1), unusual), made.size, 20 * made.size)
    if unusual[0]:
        np.tan(x, made)
    return made if back is None else made.transpose(back)


def _alone(op: Any, kernel: Any, x: Any, *, out: Any = None, **attrs: Any) -> Any:
    """``op`` of a large array by a loop that does nothing else."""
    if out is not None or x.__class__ is not np.ndarray or x.size < WORTH or not fits(x):
        return op.forward(np, x, out=out, **attrs)
    (x,), back = aligned(x)
    made = np.empty_like(x)
    share(kernel, (x.reshape(-1), made.reshape(-1)), made.size, 200 * made.size)
    return made if back is None else made.transpose(back)


def polygamma(x: Any, *, order: int, out: Any = None) -> Any:
    """The first derivative of ``digamma`` by a loop."""
    if order == 1:
        return _alone(_polygamma, gamma.trigamma, x, out=out, order=order)
    return _polygamma.forward(np, x, out=out, order=order)


def pow(x: Any, y: Any, *, out: Any = None) -> Any:
    """Cubes in one pass; all else by NumPy."""
    if y.__class__ in (int, float) and y == 3 and out is None:
        found = _by_code(_pow, (x, 3), {})
        if found is not None:
            return found
    return pointwise.pow(x, y, out=out)


_FOR_WIDE: Any = (
    _exp2, _expm1, _log1p, _log2, _log10, _tanh, _tan, _asin, _acos, _atan, _atan2, _sinh, _cosh, _atanh,
)  # fmt: skip


#: Generated kernels for functions that NumPy computes several times faster with AVX-512 than without.
GENERATED: dict[str, Kernel] = {
    **{op.name: functools.partial(generated, op, getattr(np, op.ufunc)) for op in _FOR_WIDE},
    "tan": tan,
    "sigmoid": functools.partial(generated, _sigmoid, direct.sigmoid),  # made of tanh
}


def _outrun() -> dict[str, Kernel]:
    """Functions for which NumPy runs no AVX-512 loop in float32: those that it has are for such processors
    alone, and elsewhere it goes number by number (``log1p`` of 262,144: 4,600 us; generated 420).

    Where it runs them, they are taken: they need half to nine tenths of the generated kernels' time, and are
    right to 4 units in the last place, which is what NumPy promises of them.
    """
    try:
        from numpy.lib.introspect import opt_func_info
    except ImportError:  # NumPy 2.0 does not tell
        return {}
    loops = opt_func_info(f"^({'|'.join(op.ufunc for op in _FOR_WIDE)})$", "^float32$")
    found: dict[str, Kernel] = {}
    for op in _FOR_WIDE:
        used = "".join(loop["current"] for loop in loops.get(op.ufunc, {}).values())
        if "V4" not in used and "AVX512" not in used:
            found[op.name] = GENERATED[op.name]
    if _tanh.name in found:
        found["sigmoid"] = GENERATED["sigmoid"]
    return found


KERNELS: dict[str, Kernel] = {
    **_outrun(),
    **{
        op.name: functools.partial(generated, op, functools.partial(op.forward, np))
        for op in (_erf, _erfc, _copysign, _rsqrt, _hypot, _logaddexp)
    },
    "pow": pow,
    "sign": functools.partial(generated, _sign, direct.sign),
    "remainder": remainder,
    "floor_divide": floor_divide,
    "fmod": fmod,
    "lgamma": functools.partial(_alone, _lgamma, gamma.lgamma),
    "digamma": functools.partial(_alone, _digamma, gamma.digamma),
    "polygamma": polygamma,
}
COMPOSITES: dict[str, Kernel] = {
    op.name: functools.partial(_in_parts, op) for op in (_leaky_relu_grad, _softplus_grad, _nan_to_num)
}

__all__ = ["COMPOSITES", "KERNELS", "generated"]
