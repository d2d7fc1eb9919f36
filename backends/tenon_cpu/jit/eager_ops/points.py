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
from tenon.ops import erf as _erf
from tenon.ops import erfc as _erfc
from tenon.ops import exp2 as _exp2
from tenon.ops import expm1 as _expm1
from tenon.ops import hypot as _hypot
from tenon.ops import leaky_relu_grad as _leaky_relu_grad
from tenon.ops import log1p as _log1p
from tenon.ops import log2 as _log2
from tenon.ops import log10 as _log10
from tenon.ops import logaddexp as _logaddexp
from tenon.ops import nan_to_num as _nan_to_num
from tenon.ops import pow as _pow
from tenon.ops import rsqrt as _rsqrt
from tenon.ops import sigmoid as _sigmoid
from tenon.ops import sinh as _sinh
from tenon.ops import softplus_grad as _softplus_grad
from tenon.ops import tan as _tan
from tenon.ops import tanh as _tanh
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.eager_ops.calls import FLOAT, WORTH, aligned, fits, plain, share
from tenon_cpu.jit.loops import gamma, points
from tenon_cpu.jit.short_floats import elementwise as short

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


def coded(op: Op) -> Kernel:
    """``op`` by generated code; the kernel declines what that cannot do."""

    def kernel(*args: Any, **attrs: Any) -> Any:
        found = _by_code(op, args, attrs)
        return NotImplemented if found is None else found

    return kernel


def divides(x: Any, y: Any, out: Any) -> bool:
    """Whether a loop serves: large float32 arrays, or one and a number."""
    array = x if hasattr(x, "dtype") else y
    return (
        out is None
        and array.size >= WORTH
        and fits(array)
        and all(v.dtype is FLOAT for v in (x, y) if hasattr(v, "dtype"))
    )


def _quotients(kernel: Any, x: Any, y: Any) -> Any:
    """By a loop for quotients below 2**22."""
    shape = np.broadcast_shapes(np.shape(x), np.shape(y))
    given = [plain(np.broadcast_to(np.asarray(v, FLOAT), shape)).reshape(-1) for v in (x, y)]
    made, unusual = np.empty(shape, FLOAT), np.zeros(1, np.uint8)
    share(kernel, (*given, made.reshape(-1), unusual), made.size, 10 * made.size)
    return NotImplemented if unusual[0] else made


def remainder(x: Any, y: Any) -> Any:
    """Python's modulo."""
    return _quotients(points.remainder, x, y)


def floor_divide(x: Any, y: Any) -> Any:
    """The whole quotient below."""
    return _quotients(points.floor_divide, x, y)


def fmod(x: Any, y: Any) -> Any:
    """C's modulo."""
    return _quotients(points.fmod, x, y)


def tan(x: Any) -> Any:
    """By a loop for what is below 2**20; NumPy does all others."""
    (x,), back = aligned(x)
    made, unusual = np.empty_like(x), np.zeros(1, np.uint8)
    share(points.tan, (x.reshape(-1), made.reshape(-1), unusual), made.size, 20 * made.size)
    if unusual[0]:
        np.tan(x, made)
    return made if back is None else made.transpose(back)


def _alone(kernel: Any, x: Any) -> Any:
    """A large array by a loop that does nothing else."""
    (x,), back = aligned(x)
    made = np.empty_like(x)
    share(kernel, (x.reshape(-1), made.reshape(-1)), made.size, 200 * made.size)
    return made if back is None else made.transpose(back)


def lgamma(x: Any) -> Any:
    """By a loop."""
    return _alone(gamma.lgamma, x)


def digamma(x: Any) -> Any:
    """By a loop."""
    return _alone(gamma.digamma, x)


def trigamma(x: Any) -> Any:
    """The first derivative of ``digamma`` by a loop."""
    return _alone(gamma.trigamma, x)


def cube(x: Any, y: Any) -> Any:
    """In one pass."""
    found = _by_code(_pow, (x, 3), {})
    return NotImplemented if found is None else found


FOR_WIDE: tuple[Any, ...] = (
    _exp2, _expm1, _log1p, _log2, _log10, _tanh, _tan, _asin, _acos, _atan, _atan2, _sinh, _cosh, _atanh,
)  # fmt: skip


#: Generated kernels for functions that NumPy computes several times faster with AVX-512 than without.
GENERATED: dict[str, Kernel] = {
    **{op.name: coded(op) for op in FOR_WIDE},
    "tan": tan,
    "sigmoid": coded(_sigmoid),  # made of tanh
}


@functools.cache
def outrun() -> frozenset[str]:
    """Functions for which NumPy runs no AVX-512 loop in float32: those that it has are for such processors
    alone, and elsewhere it goes number by number (``log1p`` of 262,144: 4,600 us; generated 420).

    Where it runs them, they are taken: they need half to nine tenths of the generated kernels' time, and are
    right to 4 units in the last place, which is what NumPy promises of them.
    """
    try:
        from numpy.lib.introspect import opt_func_info
    except ImportError:  # NumPy 2.0 does not tell
        return frozenset()
    loops = opt_func_info(f"^({'|'.join(op.ufunc for op in FOR_WIDE)})$", "^float32$")
    slow = []
    for op in FOR_WIDE:
        used = "".join(loop["current"] for loop in loops.get(op.ufunc, {}).values())
        if "V4" not in used and "AVX512" not in used:
            slow.append(op.name)
    return frozenset(slow)


#: Ops that NumPy has no loop for, or takes several.
WITHOUT_LOOP: tuple[Op, ...] = (_erf, _erfc, _copysign, _rsqrt, _hypot, _logaddexp)
#: Composites of which the code does all parts at once.
IN_PARTS: tuple[Op, ...] = (_leaky_relu_grad, _softplus_grad, _nan_to_num)
