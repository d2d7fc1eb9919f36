"""Rows of the table: activations and selection."""

from __future__ import annotations

import math

import numpy as np

from tenon.extend import Condition, KernelRow, KernelTable, requires, size_at_least
from tenon_cpu.jit.eager_ops import activations as eager_activations
from tenon_cpu.jit.eager_ops import selection as eager_selection
from tenon_cpu.jit.eager_ops.calls import MIN_ELEMENTS
from tenon_cpu.jit.short_floats import ops as short_ops
from tenon_cpu.kernels import activation, direct, piecewise, pointwise, selection
from tenon_cpu.table.conditions import NO_OUT, contiguous, floats, real, same_shape

#: Elements from which SiLU in blocks is faster than its composite.
_SILU = 1 << 10
#: Elements from which one pass of NumPy's clip, or two of leaky ReLU, are faster than the reference.
_WALKS = 1 << 10
#: Elements from which selecting by bits is faster than ``np.where``.
_BITS = 1 << 12
_NUMBERS = frozenset((bool, int, float))

_ARRAY = Condition("x.__class__ is ndarray", "x is an array", {"ndarray": np.ndarray}, "type(x)")
_LARGE = (size_at_least("x", MIN_ELEMENTS), *floats("x"))
_FLOAT_BLOCKS = (Condition("x.dtype.char == 'f'", "x of float32", {}, "x.dtype"), contiguous("x"))
_IN_PLACE = Condition(
    "(out is None or (out is x and x.flags.carray))", "out is not given, or x itself in C order"
)
_CHOICE = Condition(
    f"(getattr(x, 'size', 0) >= {_BITS} or getattr(y, 'size', 0) >= {_BITS})",
    f"x or y has {_BITS:,} elements or more",
    {},
    "getattr(x, 'size', 1), getattr(y, 'size', 1)",
)


def _bounds(min: object, max: object) -> bool:
    """Whether both bounds are numbers other than NaN, or None."""
    bounds = (-math.inf if min is None else min, math.inf if max is None else max)
    return all(b.__class__ in _NUMBERS and b == b for b in bounds)


def add_to(table: KernelTable) -> None:
    """Add the rows of this file's ops to ``table``."""
    numbers = requires(_bounds, "bounds are numbers, and not NaN")
    table.add(
        "gelu",
        KernelRow("compiled, with its derivative", eager_activations.gelu, _LARGE),
        KernelRow("NumPy, in blocks", activation.gelu, _FLOAT_BLOCKS),
    )
    table.add(
        "silu",
        KernelRow("compiled, with its derivative", eager_activations.silu, _LARGE),
        KernelRow("NumPy, in blocks", activation.silu, (size_at_least("x", _SILU), *_FLOAT_BLOCKS)),
    )
    table.add(
        "relu",
        KernelRow("compiled", eager_activations.relu, (*_LARGE, _IN_PLACE)),
        KernelRow("NumPy, the fastest function for the size", direct.relu),
    )
    table.add(
        "relu_grad",
        KernelRow(
            "compiled",
            eager_activations.relu_grad,
            (size_at_least("g", MIN_ELEMENTS), same_shape("g", "out"), *floats("g", "out")),
        ),
        KernelRow(
            "NumPy, by bits in blocks",
            piecewise.relu_grad,
            (size_at_least("g", _BITS), contiguous("g", "out"), same_shape("g", "out")),
        ),
        KernelRow("NumPy, by selection", direct.relu_grad),
    )
    table.add(
        "leaky_relu",
        KernelRow(
            "NumPy, the larger of two",
            pointwise.leaky_relu,
            (real("x"), size_at_least("x", _WALKS), Condition("0 < slope <= 1", "slope above 0, at most 1")),
        ),
    )
    table.add(
        "clamp",
        KernelRow(
            "compiled, in place",
            eager_activations.clamp,
            (
                Condition("out is not None and out is x", "out is x"),
                *_LARGE,
                Condition("x.flags.carray", "x is in C order"),
                numbers,
            ),
        ),
        KernelRow(
            "NumPy, in one pass",
            pointwise.clamp,
            (_ARRAY, real("x"), size_at_least("x", _WALKS), numbers),
        ),
    )
    table.add(
        "where",
        KernelRow(
            "generated, of 16-bit floats",
            short_ops.where,
            (
                _CHOICE,
                NO_OUT,
                requires(short_ops.can_select, "y, or x where that is a number, is of 16-bit floats"),
            ),
            "small arrays, and mixed dtypes",
        ),
        KernelRow(
            "compiled",
            eager_selection.where,
            (
                _CHOICE,
                NO_OUT,
                requires(
                    eager_selection.is_supported,
                    "large float32 arrays of one shape, or one of them and a number",
                ),
            ),
        ),
        KernelRow(
            "NumPy, by bits or in a copy",
            selection.where,
            (_CHOICE, NO_OUT, requires(selection.is_supported, "a large array in C order and a number")),
        ),
    )


__all__ = ["add_to"]
