"""What an event's shapes tell: dimensions, Kineto's names of dtypes, FLOPs, bytes."""

from __future__ import annotations

from typing import Any

from tenon.extend import Aval, errors

TYPES = {
    "float32": "float", "float64": "double", "int64": "long int", "int32": "int", "bool": "bool",
    "float16": "c10::Half", "bfloat16": "c10::BFloat16", "uint8": "unsigned char", "int16": "short int",
    "int8": "signed char",
}  # fmt: skip
#: Numbers that stand for those that an op was given: costs depend on shapes.
_NUMBERS: dict[Any, Any] = {float: 1.0, int: 1, bool: True}
#: What ``Op.cost`` raises where shapes alone do not tell.
UNKNOWN = (errors.TenonError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError)


def type_name(dtype: Any) -> str:
    """Kineto's, or NumPy's."""
    return TYPES.get(dtype.name, str(dtype.name))


def dims(signature: Any) -> dict[str, Any]:
    """Arguments of an event for ``signature``: shape and dtype, or class and None, of each argument."""
    listed = [[] if dtype is None else list(shape) for shape, dtype in signature]
    types = [
        type_name(dtype) if dtype is not None else "Scalar" if kind in _NUMBERS else ""
        for kind, dtype in signature
    ]
    return {"Input Dims": listed, "Input type": types}


def flops(op: Any, signature: Any, attrs: Any) -> float:
    """What ``op`` costs; 0 where shapes do not tell."""
    given = [_NUMBERS.get(shape) if dtype is None else Aval(shape, dtype) for shape, dtype in signature]
    try:
        return float(op.cost(*given, **attrs))
    except UNKNOWN:
        return 0.0


def itemsize(dtype: str) -> int:
    """Bytes of a number of the dtype of this name."""
    return {"bfloat16": 2, "bool": 1, "bytes": 0, "": 0}.get(dtype) or (
        int("".join(c for c in dtype if c.isdigit()) or 0) // 8
    )
