"""Operands of ops that are not tensors: Python numbers and objects that convert to them; TypeError for
others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon.engine.op import Op
from tenon.engine.types import Arguments
from tenon.engine.value import Value

#: Rank in PyTorch's promotion categories (bool < integer < floating < complex), by Python type.
RANK = {bool: 0, int: 1, float: 2, complex: 3}
#: The same by NumPy dtype kind. V is bfloat16, which NumPy would widen with a Python number: rank -1 makes
#: ``run`` convert every number to it first.
KIND_RANK = {"b": 0, "i": 1, "u": 1, "f": 2, "V": -1, "c": 3}

#: The integers that ops take, as in PyTorch: those of int64 and uint64; see ``promotion.need_64_bits``.
LEAST, MOST = -(1 << 63), (1 << 64) - 1


def need_operands(op: Op, args: Arguments) -> None:
    """Raise TypeError for a call with a single operand that is not a tensor.

    A number is accepted by ops that are one NumPy function: gradient rules take logarithms, squares and the
    like of numbers too.
    """
    if len(args) == 1 and (args[0].__class__ not in RANK or getattr(op, "ufunc", None) is None):
        raise wrong_operand(op.name, op.inputs, args, args[0])


def with_plain_numbers(op: Op, args: Arguments) -> Arguments:
    """``args`` with number-like objects replaced by Python numbers.

    TypeError for what is neither number nor tensor.
    """
    plain = tuple(_plain(v) for v in args)
    for a in plain:
        if a is not None and a.__class__ not in RANK and not isinstance(a, Value):
            raise wrong_operand(op.name, op.inputs, args, a)
    return plain


def _plain(value: object) -> object:
    """Convert NumPy scalars and numbers of subclasses such as IntEnum to Python numbers; else unchanged."""
    if isinstance(value, np.generic):
        return value.item() if value.dtype.kind in KIND_RANK else value
    return +value if isinstance(value, (int, float, complex)) and value.__class__ not in RANK else value


def wrong_type(name: str, argument: str, position: int, value: object, kind: str = "Tensor") -> TypeError:
    """PyTorch's error for ``value`` in place of a tensor, or of the ``kind`` of argument that it must be.

    ``position`` is 0 for an argument that is passed by name only.
    """
    where = f"argument '{argument}'" + (f" (position {position})" if position else "")
    return TypeError(f"{name}(): {where} must be {kind}, not {type_name(value)}")


def flag(function: str, name: str, value: object) -> bool:
    """Return ``value``, the argument ``name``, as a bool; PyTorch's TypeError if it is none."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, np.bool_):
        raise wrong_type(function, name, 0, value, "bool")
    return bool(value)


def need_flags(function: str, **flags: object) -> None:
    """Raise PyTorch's TypeError unless all of ``flags``, arguments by name, are bools."""
    for name, value in flags.items():
        flag(function, name, value)


def wrong_operand(op: str, inputs: Sequence[str], args: Sequence[object], value: object) -> TypeError:
    """The error for ``value``, one of the operands ``args`` of an op, whose ``inputs`` have names."""
    position = next(k for k, a in enumerate(args) if a is value)
    return wrong_type(op, inputs[min(position, len(inputs) - 1)].strip("*"), position + 1, value)


def type_name(value: object) -> str:
    """The name of the type of ``value`` as PyTorch's errors write it."""
    kind = type(value)
    return f"numpy.{kind.__name__}" if kind.__module__ == "numpy" else kind.__name__
