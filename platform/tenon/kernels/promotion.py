"""PyTorch's type promotion: the result dtype of mixed arguments, and the casts to it.

Dimensioned tensors outrank 0-d tensors, which outrank Python numbers: a lower rank decides only when
its category (bool < integer < floating < complex) is higher.
"""

from __future__ import annotations

import functools
import math

import ml_dtypes
import numpy as np

from tenon import dtypes
from tenon.dtypes import BOOL, COMPLEX, FLOATING, FROM_NUMPY, INTEGER, dtype
from tenon.engine.op import Op, table
from tenon.engine.operands import LEAST, MOST, type_name
from tenon.engine.types import Operand
from tenon.engine.value import Value
from tenon.errors import DTypeError, NumberOverflowError
from tenon.kernels.rounding import is_short

_FLOAT32 = dtypes.float32.numpy


def number_dtype(number: object) -> dtype:
    """Return the dtype of a tensor created from a Python number."""
    if isinstance(number, bool):
        return dtypes.bool
    if isinstance(number, int):
        need_64_bits(number)
        return dtypes.int64
    if isinstance(number, float):
        return dtypes.get_default_dtype()
    if isinstance(number, complex):
        return dtypes.get_default_dtype().to_complex()
    if not hasattr(number, "dtype"):
        raise TypeError(f"expected a tensor or a number, got {type_name(number)}")
    return dtypes.from_numpy_dtype(number.dtype)


def result_type(*args: Operand) -> dtype:
    """Return the dtype of an operation on these tensors, arrays and Python numbers (torch.result_type)."""
    ranks: list[dtype | None] = [None, None, None]  # dimensioned, 0-d, numbers
    for a in args:
        if a is None:
            continue
        if isinstance(a, Value) or hasattr(a, "shape"):
            array = a.raw if isinstance(a, Value) else a
            rank, kind = (0 if array.ndim else 1), FROM_NUMPY[array.dtype]
        else:
            rank, kind = 2, number_dtype(a)
        previous = ranks[rank]
        ranks[rank] = kind if previous is None else dtypes.promote_types(previous, kind)
    return _combine(_combine(ranks[0], ranks[1]), ranks[2]) or dtypes.get_default_dtype()


def _combine(higher: dtype | None, lower: dtype | None) -> dtype | None:
    if higher is None or lower is None:
        return higher if lower is None else lower
    if higher.category == COMPLEX:
        return higher
    if higher.category == FLOATING:
        return higher.to_complex() if lower.category == COMPLEX else higher
    if higher.category == BOOL or lower.category >= FLOATING:
        return dtypes.promote_types(higher, lower)
    return higher


def unify(op: Op, args: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """Cast ``args`` to their common dtype by ``op.promotion``; casts are ops recorded for autograd.

    Raises DTypeError if that is "equal" and the dtypes differ.
    """
    first = op.promoted_from
    if op.promotion == "equal":
        _need_equal(op, args)
    common = result_type(*args[first:])
    if op.promotion == "float" and common.category < FLOATING:
        common = dtypes.get_default_dtype()
    elif op.promotion == "number" and common.category == BOOL:
        common = dtypes.int64
    if op.boolean and common.category == INTEGER and _exceeds(common.numpy, args):
        common = dtypes.int64
    target = common.numpy
    cast = table.cast
    unified = list(args[:first])
    keeps = op.keeps_digits and is_short(target)
    for a in args[first:]:
        if keeps and len(unified) == 1:
            unified.append(_beside_short(a, target, unified[0]))
        elif isinstance(a, Value):
            unified.append(a if a.raw.dtype == target else cast(a, dtype=target))
        elif isinstance(a, (bool, int, float, complex)):
            if op.numbers_fit and common.category == INTEGER:
                need_fit(a, target)
            unified.append(convert_number(a, common))
        else:
            unified.append(a)
    return tuple(unified)


def _beside_short(a: Operand, target: np.dtype, first: Operand) -> Operand:
    """The second operand of an op that keeps its digits, beside ``first``, 16-bit floats of the dtype
    ``target``.

    A 0-d tensor is cast, to float32, even if it has that dtype: its gradient arrives in 16 bits. An integer
    beside a 0-d tensor stays one: two 0-d tensors of float16 and float32 have a result of float32.
    """
    if not isinstance(a, Value):
        need_64_bits(a)
        return a
    if a.raw.dtype == target:
        return a
    if not a.raw.ndim and a.raw.dtype.kind in "iub" and isinstance(first, Value) and not first.raw.ndim:
        return a
    return table.cast(a, dtype=target if a.raw.ndim else _FLOAT32)


def _need_equal(op: Op, args: tuple[Operand, ...]) -> None:
    tensors = [a for a in args if isinstance(a, Value)]
    if len({a.raw.dtype for a in tensors}) > 1:
        names = [dtypes.FROM_NUMPY[a.raw.dtype].name for a in tensors]
        raise DTypeError(
            f"expected m1 and m2 to have the same dtype, but got: {' != '.join(names)} ({op.name} of"
            f" {' and '.join(str(list(a.raw.shape)) for a in tensors)}). Convert one of them with .to(dtype)."
        )


def _exceeds(kind: np.dtype, args: tuple[Operand, ...]) -> bool:
    """Whether one of the numbers among ``args`` is out of the range of the integer dtype ``kind``."""
    low, high = _limits(kind)
    return any(isinstance(a, int) and not low <= a <= high for a in args)


def need_64_bits(number: Operand) -> None:
    """Raise NumberOverflowError for integers that neither int64 nor uint64 holds, as PyTorch does."""
    if isinstance(number, int) and not LEAST <= number <= MOST:
        shown = "an integer" if number.bit_length() > 256 else number
        raise NumberOverflowError(
            f"Overflow when unpacking long long: {shown} of {number.bit_length()} bits, where a number has 64"
            " at most. Pass a float if its rounding will do."
        )


def _wrapped(number: int, to: dtype) -> Operand:
    """Return ``number`` wrapped around to the range of the integer dtype ``to``, as in PyTorch."""
    limits = np.iinfo(to.numpy)
    if limits.min <= number <= limits.max:
        return number
    return np.array(number).astype(to.numpy)[()]


def convert_number(number: Operand, to: dtype) -> complex | np.generic:
    """Convert a Python number to the category of ``to``, so that NumPy treats it as weakly typed there."""
    need_64_bits(number)
    if to.category == INTEGER and isinstance(number, (float, complex)):
        raise DTypeError(
            f"value {number!r} cannot be converted to type {to} without loss; cast the tensor to a float"
            " dtype first."
        )
    if to.category == INTEGER:
        return _wrapped(int(number), to)
    if to is dtypes.bfloat16 and not isinstance(number, complex):
        # ml_dtypes' arrays do not support NumPy's weak typing of Python numbers, nor integers beyond int64.
        return to.numpy.type(float(number))
    if to is dtypes.float16 and not isinstance(number, complex):
        with np.errstate(over="ignore"):
            return float(np.float16(number))  # a recorded graph has the number that the op computes with
    if to.category == FLOATING:
        return float(number) if not isinstance(number, complex) else number
    if to.category == COMPLEX:
        return complex(number)
    return number


def holds(kind: np.dtype, value: Operand) -> bool:
    """Whether ``kind`` holds the number ``value``.

    As in PyTorch, integers hold no NaN and nothing beyond their range, but whole negative numbers wrap to
    unsigned ones; floats hold no finite number beyond their largest, and real dtypes no imaginary part.
    """
    if kind.kind in "cb":
        return True
    real = value.real if isinstance(value, complex) and not value.imag else value
    if isinstance(real, complex):
        return False
    low, high = _limits(kind)
    if kind.kind == "u" and isinstance(real, int):
        low = -high
    return bool(low <= real <= high) or (kind.kind not in "iu" and not math.isfinite(real))


def need_fit(value: Operand, kind: np.dtype) -> None:
    """Raise DTypeError unless ``kind`` holds ``value``, and NumberOverflowError if 64 bits do not."""
    need_64_bits(value)
    if not holds(kind, value):
        raise DTypeError(
            f"value {value!r} cannot be converted to type {FROM_NUMPY[kind].name} without overflow"
        )


@functools.cache
def _limits(kind: np.dtype) -> tuple[float, float]:
    """Return the smallest and the largest finite number of the real dtype ``kind``."""
    if kind.kind in "iu":
        return int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    largest = float(ml_dtypes.finfo(kind).max)  # type: ignore[no-untyped-call]
    return -largest, largest


def fitted(value: Operand, kind: np.dtype) -> Operand:
    """Return ``value`` as a number in the range of ``kind``: negative integers wrap in unsigned dtypes.

    Raises DTypeError if ``kind`` cannot hold it (``need_fit``).
    """
    need_fit(value, kind)
    if kind.kind == "u" and isinstance(value, int) and value < 0:
        return value % (1 << 8 * kind.itemsize)
    if kind.kind == "b":
        return bool(value)
    if isinstance(value, int) and value >= 1 << 63 and kind.kind not in "iuc":
        return float(value)  # ml_dtypes converts integers by way of int64
    return value.real if isinstance(value, complex) and kind.kind != "c" else value
