"""Rows of the table: elementwise ops without a fast NumPy loop, and some whose call costs more than the
loop."""

from __future__ import annotations

import math

import numpy as np

from tenon.extend import Condition, KernelRow, KernelTable, Op, requires, size_at_least
from tenon.ops import fmax as _fmax
from tenon.ops import fmin as _fmin
from tenon.ops import sigmoid as _sigmoid
from tenon.ops import sign as _sign
from tenon_cpu.jit.eager_ops import elementwise as eager_elementwise
from tenon_cpu.jit.eager_ops import filling as eager_filling
from tenon_cpu.jit.eager_ops.calls import FLOAT, MIN_ELEMENTS
from tenon_cpu.jit.short_floats import ops as short_ops
from tenon_cpu.kernels import direct, pointwise
from tenon_cpu.table.conditions import NO_OUT, floats, real

_DECLINES = "other dtypes than float32, arrays that broadcast, and where llvmlite is missing"
_ARRAY = Condition("x.__class__ is ndarray", "x is an array", {"ndarray": np.ndarray}, "type(x)")
_LARGE = (_ARRAY, NO_OUT, size_at_least("x", MIN_ELEMENTS), *floats("x"))
_UNUSUAL = "quotients of 2**22 and more"


def generated(op: Op) -> KernelRow:
    """Return the row of the kernel that is generated from the op's expression."""
    arrays = " and ".join(f"{name}.__class__ is ndarray" for name in op.inputs)
    large = Condition(
        f"{arrays} and {op.inputs[0]}.size >= {MIN_ELEMENTS}",
        f"all inputs are arrays, with {MIN_ELEMENTS:,} elements or more",
        {"ndarray": np.ndarray},
        f"getattr({op.inputs[0]}, 'size', 1)",
    )
    return KernelRow(
        "generated from the expression", eager_elementwise.generated_kernel(op), (large,), _DECLINES
    )


_SCALAR_EXPONENT = Condition(
    "getattr(x, 'dtype', None) is not None and x.dtype.char in 'fdE'"
    " and (getattr(y, 'size', 1) == 1 or y.shape != x.shape or 0 in y.strides)",
    "x of float32, float64 or bfloat16, y is one number or repeats",
)
_SIGNED = Condition(
    "getattr(x, 'dtype', getattr(y, 'dtype', None)).char in 'fd'",
    "float32 and float64, with zeros of both signs",
)
_LARGE_SHAPE = Condition(
    f"prod(shape) >= {MIN_ELEMENTS}", f"{MIN_ELEMENTS:,} elements or more", {"prod": math.prod}, "shape"
)
_FILLS = Condition(
    "(x.dtype if dtype is None else dtype) is float32 and not (value.__class__ is int and value == 0)",
    "float32, and a number other than 0",
    {"float32": FLOAT},
)


def add_to(table: KernelTable) -> None:
    """Add the rows of this file's ops to ``table``."""
    slow = eager_elementwise.without_avx512_loops()
    for wide in eager_elementwise.FOR_WIDE:
        if wide.name in slow and wide.name != "tan":
            table.add(wide.name, generated(wide))
    if "tan" in slow:
        table.add("tan", KernelRow("compiled", eager_elementwise.tan, _LARGE))
    for op in (*eager_elementwise.WITHOUT_LOOP, *eager_elementwise.IN_PARTS):
        table.add(op.name, generated(op))
    sigmoid = (generated(_sigmoid),) if "tanh" in slow else ()  # sigmoid is computed by tanh
    table.add("sigmoid", *sigmoid, KernelRow("NumPy, by tanh in one array", direct.sigmoid))
    table.add("sign", generated(_sign), KernelRow("NumPy, NaN put to 0", direct.sign))
    divides = requires(
        eager_elementwise.can_divide, f"float32, {MIN_ELEMENTS:,} elements or more, no out; numba"
    )
    for name in ("remainder", "floor_divide", "fmod"):
        table.add(name, KernelRow("compiled", getattr(eager_elementwise, name), (divides,), _UNUSUAL))
    for extreme, kernel in ((_fmax, pointwise.fmax), (_fmin, pointwise.fmin)):
        table.add(
            extreme.name, generated(extreme), KernelRow("NumPy, zeros by the first", kernel, (_SIGNED,))
        )
    for name in ("lgamma", "digamma"):
        table.add(name, KernelRow("compiled", getattr(eager_elementwise, name), _LARGE))
    first = Condition("order == 1", "order is 1", {}, "order")
    table.add("polygamma", KernelRow("compiled", eager_elementwise.trigamma, (first, *_LARGE)))
    table.add(
        "pow",
        KernelRow(
            "generated, a cube",
            eager_elementwise.cube,
            (
                Condition("y.__class__ in (int, float) and y == 3", "y is the number 3", {}, "y"),
                NO_OUT,
                _ARRAY,
                size_at_least("x", MIN_ELEMENTS),
            ),
            _DECLINES,
        ),
        KernelRow(
            "NumPy, as a product or root",
            pointwise.pow,
            (_SCALAR_EXPONENT,),
            "exponents other than 2, 3, 0.5, -1 and -0.5",
        ),
    )
    table.add("logical_not", KernelRow("NumPy, comparison with 0", pointwise.logical_not, (real("x"),)))
    table.add(
        "cast",
        KernelRow(
            "generated, between float32 and 16 bits",
            short_ops.cast,
            (
                size_at_least("x", MIN_ELEMENTS),
                requires(short_ops.can_cast, "contiguous, between float32, float16 and bfloat16; llvmlite"),
            ),
        ),
    )
    _add_moves(table)


def _add_moves(table: KernelTable) -> None:
    """Add the rows of ops that compute nothing: NumPy's methods, called directly."""
    for name in ("conj", "reshape", "view", "split", "transpose", "permute", "index"):
        table.add(name, KernelRow("NumPy's method", getattr(direct, name)))
    table.add(
        "new_full",
        KernelRow(
            "compiled fill",
            eager_filling.new_full,
            (_LARGE_SHAPE, _FILLS),
        ),
        KernelRow("NumPy, empty and fill", direct.new_full),
    )
    table.add(
        "copy",
        KernelRow(
            "compiled fill",
            eager_filling.copy,
            (Condition("out is not None", "out is given"), size_at_least("out", MIN_ELEMENTS)),
            "arrays, and values of another dtype or not in C order",
        ),
    )
    table.add(
        "flip",
        KernelRow(
            "compiled, rows backwards",
            eager_filling.flip,
            (
                Condition("tuple(axes) == (x.ndim - 1,)", "along the last axis alone", {}, "axes"),
                size_at_least("x", MIN_ELEMENTS),
                *floats("x"),
            ),
        ),
    )


__all__ = ["add_to", "generated"]
