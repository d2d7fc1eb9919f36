"""Attributes of events computed from shapes: dimensions, Kineto's names of dtypes, FLOPs, bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tenon.extend import Attrs, Aval, Op, errors
from tenon_profiler.events import Arguments

#: An argument of an op: shape and dtype, or class and None.
Argument: TypeAlias = tuple[Any, Any]
#: The arguments of an op in a record, two items for each: those of ``Argument``.
Signature: TypeAlias = Sequence[Any]
TYPES = {
    "float32": "float", "float64": "double", "int64": "long int", "int32": "int", "bool": "bool",
    "float16": "c10::Half", "bfloat16": "c10::BFloat16", "uint8": "unsigned char", "int16": "short int",
    "int8": "signed char",
}  # fmt: skip
#: Values in place of an op's scalar arguments, by class: costs depend on shapes only.
_NUMBERS: dict[object, float] = {float: 1.0, int: 1, bool: True}
#: Errors that ``Op.cost`` raises if shapes alone do not determine it.
UNKNOWN = (errors.TenonError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError)


def type_name(dtype: np.dtype) -> str:
    """Return Kineto's name of ``dtype``, or NumPy's if it has none."""
    return TYPES.get(dtype.name, str(dtype.name))


def dims(signature: Sequence[Argument]) -> Arguments:
    """Return the arguments of an event that describe the arguments of the op."""
    listed = [[] if dtype is None else list(shape) for shape, dtype in signature]
    types = [
        type_name(dtype) if dtype is not None else "Scalar" if kind in _NUMBERS else ""
        for kind, dtype in signature
    ]
    return {"Input Dims": listed, "Input type": types}


def flops(op: Op, signature: Sequence[Argument], attrs: Attrs) -> float:
    """Return the cost of ``op``; 0 if shapes do not determine it."""
    operands = [_NUMBERS.get(shape) if dtype is None else Aval(shape, dtype) for shape, dtype in signature]
    try:
        return float(op.cost(*operands, **attrs))
    except UNKNOWN:
        return 0.0


def itemsize(dtype: str) -> int:
    """Return the bytes of an element of the dtype of this name."""
    return {"bfloat16": 2, "bool": 1, "bytes": 0, "": 0}.get(dtype) or (
        int("".join(c for c in dtype if c.isdigit()) or 0) // 8
    )
