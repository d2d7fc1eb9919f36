"""Ops on large arrays of 16-bit floats: one generated kernel for a formula, else float32's kernel between
conversions.

Float32's kernel between conversions rounds once, at the end, where NumPy's ops would round each step of a
softmax. Calls with arrays of several float dtypes, and all calls without llvmlite, are left to the kernels
for all dtypes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tenon.extend import Attr, Composite, Kernel, Kind, Op, Operand, ShortKernel
from tenon.ops import where as _where
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.compiler.compile import available
from tenon_cpu.jit.short_floats import activations as short_activations
from tenon_cpu.jit.short_floats import elementwise as short
from tenon_cpu.jit.short_floats import rows as short_rows

#: Elements from which these kernels are faster than NumPy's loops.
MIN_ELEMENTS = 1 << 13
FLOAT, BFLOAT, HALF = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
SHORT = frozenset((BFLOAT, HALF))
_FLOATS = frozenset((FLOAT, BFLOAT, HALF))
_NUMBERS = frozenset((bool, int, float))
_BOOL = np.dtype(np.bool_)


_LARGE = f"arrays of {MIN_ELEMENTS:,} elements or more; llvmlite"
_BFLOAT16 = f"arrays of {MIN_ELEMENTS:,} elements or more, of bfloat16; numba"
_CONVERTED = "float32's kernel between conversions"


def kernels_for(op: Op) -> Sequence[ShortKernel]:
    """The kernels that precede those for all dtypes, where the first array holds 16-bit floats."""
    if isinstance(op, Composite) and op.widens:
        normalised = functools.partial(_normalised, op.name.endswith("_grad"))
        return (ShortKernel(_CONVERTED, normalised, f"x in {_LARGE}"),)
    widened = ShortKernel(_CONVERTED, functools.partial(_widened, SHORT), f"{_LARGE}; floats of one dtype")
    if op.name in short_activations.WITH_SLOPE:
        activated = functools.partial(_activated, op.name)
        return (ShortKernel("compiled, of bfloat16 with its slope", activated, _BFLOAT16), widened)
    if op.name in short_rows.ROWS:
        accepts = f"{_BFLOAT16}; axis is the last"
        return (
            ShortKernel("compiled, rows of bfloat16", functools.partial(_rows, op.name), accepts),
            widened,
        )
    if op.name == "sum_to":
        accepts = f"{_BFLOAT16}; shape is that of the last axes"
        return (ShortKernel("compiled, sums of bfloat16 rows", _summed, accepts), widened)
    if op.computes_in_float32:
        return (widened,)
    if op.packable and op.kind is Kind.CONTRACT:  # no library here multiplies float16
        widened_halves = functools.partial(_widened, frozenset((HALF,)))
        return (ShortKernel(_CONVERTED, widened_halves, f"{_LARGE}; floats of float16"),)
    if op.kind is Kind.ELEMENTWISE and not op.view and op.expression_for(_ANY, {}) is not None:
        accepts = f"{_LARGE}; floats of one dtype; aligned, out in C order"
        return (ShortKernel("generated, of 16-bit floats", functools.partial(_elementwise, op), accepts),)
    return ()


#: Operands that are no numbers, to find out whether an op has a formula.
_ANY = (..., ..., ...)


def _elementwise(op: Op, kernel: Kernel, /, *args: Operand, **attrs: Attr) -> np.ndarray:
    """An elementwise op by generated code, where all promoted operands have one dtype."""
    out = attrs.pop("out", None)
    dtype, size = None, 0
    if op.keeps_digits and isinstance(args[1], np.ndarray) and not args[1].ndim:
        args = args[0], args[1][()]  # which need not have the dtype of the first operand
    for a in args[op.promoted_from :]:
        if isinstance(a, np.ndarray):
            if dtype is None:
                dtype = a.dtype
            elif a.dtype is not dtype:
                break
            size = max(size, a.size)
    else:
        if dtype is not None and dtype in SHORT and size >= MIN_ELEMENTS and _supported(args, out, dtype):
            operands = tuple([_number(a) for a in args])
            result = short.elementwise(op, operands, attrs, dtype, _BOOL if op.boolean else dtype, out)
            if result is not None:
                return result
    return kernel(*args, **attrs) if out is None else kernel(*args, out=out, **attrs)


def _supported(args: Sequence[object], out: np.ndarray | None, dtype: np.dtype) -> bool:
    """Whether generated code supports the arguments: aligned arrays, real numbers, ``out`` in C order."""
    if not llvm.available() or (out is not None and not (out.dtype is dtype and out.flags.carray)):
        return False
    for a in args:
        if isinstance(a, np.ndarray):
            if not a.flags.aligned:
                return False
        elif not (a is None or a.__class__ in _NUMBERS or isinstance(a, np.generic)):
            return False
    return True


def _number(a: Operand) -> Operand:
    """``a``, but a Python number in place of one of NumPy's scalars or of bfloat16's."""
    return float(a) if isinstance(a, np.generic) else a


def _widened(dtypes: frozenset[np.dtype], kernel: Kernel, /, *args: Operand, **attrs: Attr) -> Operand:
    """The results of float32's kernel, rounded to the dtype of the arguments, where it is of ``dtypes``."""
    dtype, size = None, 0
    for a in args:
        if isinstance(a, np.ndarray):
            kind = a.dtype
            if kind.kind in "fV":
                if dtype is None:
                    dtype = kind
                elif kind is not dtype:
                    return kernel(*args, **attrs)
            size = max(size, a.size)
    if (
        dtype not in dtypes
        or size < MIN_ELEMENTS
        or "out" in attrs
        or attrs.get("shape") == args[0].shape
        or not llvm.available()
    ):
        return kernel(*args, **attrs)
    result = kernel(*[_wide(a, dtype) for a in args], **attrs)
    if isinstance(result, tuple):
        return tuple([_narrow(r, dtype) for r in result])
    return _narrow(result, dtype)


def _rows(name: str, kernel: Kernel, /, *args: np.ndarray, **attrs: Attr) -> np.ndarray:
    """An op of ``short_rows.ROWS`` along the last axis of bfloat16 arrays."""
    x = args[0]
    if _bfloats_of_one_shape(args) and attrs["axis"] == x.ndim - 1:
        return short_rows.by_rows(name, *args)
    return kernel(*args, **attrs)


def _summed(kernel: Kernel, /, x: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
    """The sum of a bfloat16 array over its leading axes."""
    lead = x.ndim - len(shape)
    if _bfloats_of_one_shape((x,)) and lead and shape and x.shape[lead:] == shape:
        return short_rows.summed(x, shape)
    result: np.ndarray = kernel(x, shape=shape)
    return result


def _bfloats_of_one_shape(args: Sequence[np.ndarray]) -> bool:
    """Whether all arrays are large, of bfloat16 and of one shape, and kernels can be compiled."""
    shape = args[0].shape
    return (
        args[0].size >= MIN_ELEMENTS
        and all(a.dtype is BFLOAT and a.shape == shape for a in args)
        and available()
    )


def _activated(name: str, kernel: Kernel, /, x: np.ndarray, **attrs: Attr) -> tuple[np.ndarray, ...]:
    """The value and slope of an activation of bfloat16."""
    if x.size < MIN_ELEMENTS or x.dtype is not BFLOAT or not available():
        return kernel(x, **attrs)
    return short_activations.activated(
        "gelu_tanh" if attrs.get("approximate") == "tanh" else name, x, slope=True
    )


def _normalised(gradient: bool, kernel: Kernel, /, *args: Operand, **attrs: Attr) -> tuple[np.ndarray, ...]:
    """A norm, or its gradients: with an input of 16 bits, parameters and statistics may be float32.

    Statistics stay float32; gradients get the dtypes of the arguments that they are gradients of.
    """
    x = args[0]
    if x.size < MIN_ELEMENTS or x.dtype not in SHORT or not llvm.available():
        return kernel(*args, **attrs)
    out, *rest = kernel(*[_wide(a, x.dtype) for a in args], **attrs)
    out = _narrow(out, x.dtype)
    if gradient:
        affine = x if args[2] is None else args[2]
        rest = [_narrow(r, affine.dtype) if affine.dtype in SHORT else r for r in rest]
    return (out, *rest)


def _wide(a: Operand, dtype: np.dtype) -> Operand:
    """``a`` in float32 if it is of ``dtype``."""
    if isinstance(a, np.ndarray) and a.dtype is dtype:
        return converted(a, FLOAT)
    return float(a) if isinstance(a, np.generic) and a.dtype == dtype else a


def _narrow(a: Operand, dtype: np.dtype) -> Operand:
    """``a`` in ``dtype`` if it is of float32."""
    if getattr(a, "dtype", None) == FLOAT:
        return converted(a, dtype) if isinstance(a, np.ndarray) else a.astype(dtype)
    return a


def converted(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """``x`` in another float dtype; a new array."""
    if x.size < MIN_ELEMENTS or not x.flags.aligned or not llvm.available():
        return x.astype(dtype)
    return short.cast(x, dtype)


def can_cast(x: np.ndarray, dtype: npt.DTypeLike) -> bool:
    """Whether ``cast`` supports the call: a large array, from and to float32, float16 or bfloat16."""
    to, own = np.dtype(dtype), x.dtype
    return bool(
        x.size >= MIN_ELEMENTS
        and own is not to
        and own in _FLOATS
        and to in _FLOATS
        and x.flags.c_contiguous
        and x.flags.aligned
        and llvm.available()
    )


def cast(x: np.ndarray, *, dtype: npt.DTypeLike) -> np.ndarray:
    """``x`` in another float dtype."""
    return short.cast(x, np.dtype(dtype))


def can_select(x: object, y: object) -> bool:
    """Whether ``where`` selects from 16-bit floats, which its first operand does not show."""
    array = y if isinstance(y, np.ndarray) else x
    return isinstance(array, np.ndarray) and array.__class__ is np.ndarray and array.dtype in SHORT


def _declined(*args: object, **attrs: object) -> np.ndarray:
    return NotImplemented


def where(condition: np.ndarray, x: np.ndarray | float, y: np.ndarray | float) -> np.ndarray:
    """Select from 16-bit floats; declines calls that generated code does not support."""
    return _elementwise(_where, _declined, condition, x, y)


__all__ = ["can_cast", "can_select", "cast", "kernels_for", "where"]
