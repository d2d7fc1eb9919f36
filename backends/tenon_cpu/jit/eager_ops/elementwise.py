"""Elementwise ops on large float32 arrays by generated code, where NumPy has no vectorised loop for them, or
needs several."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from tenon.extend import Attr, Kernel, Op, Operand, Primitive
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
from tenon_cpu.jit.compiler.compile import Kernel as Compiled
from tenon_cpu.jit.eager_ops.calls import FLOAT, MIN_ELEMENTS, aligned, fits, plain, share
from tenon_cpu.jit.loops import division, gamma
from tenon_cpu.jit.short_floats import elementwise as short

_BOOL = np.dtype(np.bool_)


def _run_generated(op: Op, args: Sequence[Operand], attrs: Mapping[str, Attr]) -> np.ndarray | None:
    """The op's result by generated code; None if the arrays are small or unsupported, or llvmlite is
    missing."""
    first, out = args[0], attrs.get("out")
    if first.__class__ is not np.ndarray or first.size < MIN_ELEMENTS:
        return None
    if out is not None and not (out is first and out.flags.carray):
        return None
    for a in args:
        if a.__class__ is np.ndarray and not (
            a.dtype is FLOAT and a.size >= MIN_ELEMENTS and a.flags.aligned
        ):
            return None
    if not llvm.available():
        return None
    options = {name: value for name, value in attrs.items() if name != "out"}
    return short.elementwise(op, args, options, FLOAT, _BOOL if op.boolean else FLOAT, out)


def generated_kernel(op: Op) -> Kernel:
    """Return a kernel of ``op`` by generated code; it declines calls that the code does not support."""

    def kernel(*args: Operand, **attrs: Attr) -> np.ndarray:
        result = _run_generated(op, args, attrs)
        return NotImplemented if result is None else result

    return kernel


#: An operand of a division.
_Operand = np.ndarray | float


def can_divide(x: _Operand, y: _Operand, out: np.ndarray | None) -> bool:
    """Whether the loops below support the operands: large float32 arrays, or one and a number."""
    arrays = [v for v in (x, y) if isinstance(v, np.ndarray | np.generic)]
    first = arrays[0]
    return (
        out is None and first.size >= MIN_ELEMENTS and fits(first) and all(v.dtype is FLOAT for v in arrays)
    )


def _quotients(kernel: Compiled, x: _Operand, y: _Operand) -> np.ndarray:
    """The result of a division by a loop; declines if a quotient is 2**22 or more."""
    shape = np.broadcast_shapes(np.shape(x), np.shape(y))
    operands = [plain(np.broadcast_to(np.asarray(v, FLOAT), shape)).reshape(-1) for v in (x, y)]
    out, unusual = np.empty(shape, FLOAT), np.zeros(1, np.uint8)
    share(kernel, (*operands, out.reshape(-1), unusual), out.size, 10 * out.size)
    return NotImplemented if unusual[0] else out


def remainder(x: _Operand, y: _Operand) -> np.ndarray:
    """Python's modulo."""
    return _quotients(division.remainder, x, y)


def floor_divide(x: _Operand, y: _Operand) -> np.ndarray:
    """The quotient, rounded down."""
    return _quotients(division.floor_divide, x, y)


def fmod(x: _Operand, y: _Operand) -> np.ndarray:
    """C's modulo."""
    return _quotients(division.fmod, x, y)


def tan(x: np.ndarray) -> np.ndarray:
    """The tangent, by a loop if all arguments are below 2**20, else by NumPy."""
    (x,), back = aligned(x)
    out, unusual = np.empty_like(x), np.zeros(1, np.uint8)
    share(division.tan, (x.reshape(-1), out.reshape(-1), unusual), out.size, 20 * out.size)
    if unusual[0]:
        np.tan(x, out)
    return out if back is None else out.transpose(back)


def _elementwise(kernel: Compiled, x: np.ndarray) -> np.ndarray:
    """The result of a loop of one input, at 20 ns an element."""
    (x,), back = aligned(x)
    out = np.empty_like(x)
    share(kernel, (x.reshape(-1), out.reshape(-1)), out.size, 200 * out.size)
    return out if back is None else out.transpose(back)


def lgamma(x: np.ndarray) -> np.ndarray:
    """The logarithm of the absolute value of the gamma function."""
    return _elementwise(gamma.lgamma, x)


def digamma(x: np.ndarray) -> np.ndarray:
    """The first derivative of ``lgamma``."""
    return _elementwise(gamma.digamma, x)


def trigamma(x: np.ndarray) -> np.ndarray:
    """The second derivative of ``lgamma``."""
    return _elementwise(gamma.trigamma, x)


def cube(x: np.ndarray, y: float) -> np.ndarray:
    """``x ** 3`` in one pass."""
    result = _run_generated(_pow, (x, 3), {})
    return NotImplemented if result is None else result


FOR_WIDE: tuple[Primitive, ...] = (
    _exp2, _expm1, _log1p, _log2, _log10, _tanh, _tan, _asin, _acos, _atan, _atan2, _sinh, _cosh, _atanh,
)  # fmt: skip


#: Generated kernels for functions that NumPy computes several times faster with AVX-512 than without.
GENERATED: dict[str, Kernel] = {
    **{op.name: generated_kernel(op) for op in FOR_WIDE},
    "tan": tan,
    "sigmoid": generated_kernel(_sigmoid),  # made of tanh
}


@functools.cache
def without_avx512_loops() -> frozenset[str]:
    """The names of functions for which NumPy runs no AVX-512 loop in float32.

    Without one it computes number by number (``log1p`` of 262,144: 4,600 us; generated 420). With one it is
    preferred: it needs half to nine tenths of the generated kernel's time, and is accurate to 4 units in the
    last place, as NumPy documents.
    """
    try:
        from numpy.lib.introspect import opt_func_info
    except ImportError:  # NumPy 2.0 lacks it
        return frozenset()
    ufuncs = {op.name: op.ufunc for op in FOR_WIDE if op.ufunc is not None}
    loops = opt_func_info(f"^({'|'.join(ufuncs.values())})$", "^float32$")
    slow = []
    for name, ufunc in ufuncs.items():
        used = "".join(loop["current"] for loop in loops.get(ufunc, {}).values())
        if "V4" not in used and "AVX512" not in used:
            slow.append(name)
    return frozenset(slow)


#: Ops that NumPy has no loop for, or needs several.
WITHOUT_LOOP: tuple[Op, ...] = (_erf, _erfc, _copysign, _rsqrt, _hypot, _logaddexp)
#: Composites that the code computes in one pass.
IN_PARTS: tuple[Op, ...] = (_leaky_relu_grad, _softplus_grad, _nan_to_num)
