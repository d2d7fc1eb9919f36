"""How values of each dtype combine over ranks, for engines that do the arithmetic in NumPy or ask MPI to."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import ml_dtypes
import numpy as np

from tenon.errors import CommunicatorError, DTypeError

Array = np.ndarray[Any, Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class ReduceOp(StrEnum):
    """What a reduction computes. torch's names; ``AVG`` divides the sum by the number of ranks."""

    SUM = "sum"
    AVG = "mean"
    PRODUCT = "prod"
    MIN = "min"
    MAX = "max"

    @classmethod
    def of(cls, op: str | ReduceOp) -> ReduceOp:
        """The operation with this name.

        >>> ReduceOp.of("mean")
        <ReduceOp.AVG: 'mean'>
        """
        try:
            return cls(op)
        except ValueError:
            names = ", ".join(repr(member.value) for member in cls)
            raise CommunicatorError(f"{op!r} is no reduction. Use one of {names}.") from None


def is_extremum(op: ReduceOp) -> bool:
    """Whether ``op`` is MIN or MAX."""
    return op is ReduceOp.MIN or op is ReduceOp.MAX


def check_transferable(dtype: np.dtype[Any]) -> None:
    """Raise ``DTypeError`` for arrays of Python objects, dates, text and the like."""
    if dtype.kind not in "biufc" and dtype != BFLOAT16:
        raise DTypeError(
            f"arrays of {dtype} cannot be communicated: only bool, integer, floating and complex numbers "
            f"can. Convert the array, or send plain Python values with all_gather_object."
        )


@functools.lru_cache(maxsize=64)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """``str(dtype)``, which takes NumPy 7 µs, remembered."""
    return str(dtype)


@functools.lru_cache(maxsize=64)
def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype to add values of ``dtype`` in: float32 for the 16-bit floats, uint8 for bool."""
    if dtype == BFLOAT16 or dtype == np.float16:
        return np.dtype(np.float32)
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    return dtype


def element_op(op: ReduceOp, dtype: np.dtype[Any]) -> ReduceOp:
    """The operation on accumulators: for bool a maximum (any) or minimum (all); for a mean, the sum."""
    if dtype.kind == "b":
        return ReduceOp.MAX if op in (ReduceOp.SUM, ReduceOp.MAX) else ReduceOp.MIN
    return ReduceOp.SUM if op is ReduceOp.AVG else op


_COMBINE = {
    ReduceOp.SUM: np.add,
    ReduceOp.PRODUCT: np.multiply,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
}


def reduce_in_order(arrays: Sequence[Array], op: ReduceOp) -> Array:
    """Combine ``arrays`` from first to last; a new array of their dtype.

    >>> reduce_in_order([np.array([1.0, 5.0]), np.array([3.0, 1.0])], ReduceOp.AVG)
    array([2., 3.])
    """
    dtype = arrays[0].dtype
    combine = _COMBINE[element_op(op, dtype)]
    total = arrays[0].astype(accumulator(dtype))
    for array in arrays[1:]:
        combine(total, array.astype(total.dtype, copy=False), out=total)
    if op is ReduceOp.AVG:
        np.divide(total, len(arrays), out=total)
    return total.astype(dtype)
