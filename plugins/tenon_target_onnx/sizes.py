"""Sizes: numbers, or expressions of symbols that are known when the model runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tenon.extend import errors

if TYPE_CHECKING:
    from tenon_target_onnx.builder import Builder

#: An int, or a symbolic size of a graph that was captured with ``dynamic=``.
Size: TypeAlias = Any


def is_number(size: Size) -> bool:
    """Whether a size is the same in every run."""
    return isinstance(size, int | np.integer)


def are_numbers(sizes: Sequence[Size]) -> bool:
    """Whether all sizes are the same in every run."""
    return all(is_number(s) for s in sizes)


_OPERATORS = {"add": "Add", "sub": "Sub", "mul": "Mul"}


def computed(builder: Builder, size: Size) -> str:
    """Return nodes that compute a symbolic size, as a vector of one int64."""
    if is_number(size):
        return builder.ints([size])
    if size.function == "symbol":
        name, axis = builder.symbols[str(size)]
        return builder.call("Shape", name, start=axis, end=axis + 1)
    left, right = (builder.size(a) for a in size.args)
    if size.function == "floordiv":  # integers are divided towards zero
        rest = builder.call("Mod", left, right)
        return builder.call("Div", builder.call("Sub", left, rest), right)
    if size.function not in _OPERATORS:
        raise errors.LoweringError(f"the target onnx cannot compute the size {size}.")
    return builder.call(_OPERATORS[size.function], left, right)
