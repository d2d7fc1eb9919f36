"""How values of each dtype are reduced over ranks, for engines that compute in NumPy or let MPI compute."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from enum import StrEnum

import ml_dtypes
import numpy as np

from tenon.distributed.communication.calls import Call
from tenon.errors import CommunicatorError, DTypeError

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class ReduceOp(StrEnum):
    """The operation of a reduction, under torch's names; ``AVG`` divides the sum by the number of ranks."""

    SUM = "sum"
    AVG = "mean"
    PRODUCT = "prod"
    MIN = "min"
    MAX = "max"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"

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
            raise CommunicatorError(f"{op!r} is not a reduction. Use one of {names}.") from None


reduce_op = ReduceOp
"""torch's old name."""


def is_extremum(op: ReduceOp) -> bool:
    """Whether ``op`` is MIN or MAX."""
    return op is ReduceOp.MIN or op is ReduceOp.MAX


def is_bitwise(op: ReduceOp) -> bool:
    """Whether ``op`` combines the bits of integers."""
    return op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


def supports_complex(reduceOp: str) -> bool:
    """Whether torch's reductions take complex tensors with this operation: sums and means do."""
    return reduceOp in (ReduceOp.SUM, ReduceOp.AVG)


def check_transferable(dtype: np.dtype) -> None:
    """Raise ``DTypeError`` for arrays of Python objects, dates, text and the like."""
    if dtype.kind not in "biufc" and dtype != BFLOAT16:
        raise DTypeError(
            f"arrays of {dtype} cannot be communicated: only bool, integer, floating and complex numbers "
            "can. Convert the array, or send plain Python values with all_gather_object."
        )


@functools.lru_cache(maxsize=64)
def dtype_name(dtype: np.dtype) -> str:
    """``str(dtype)``, cached: NumPy takes 7 µs for it."""
    return str(dtype)


@functools.lru_cache(maxsize=64)
def accumulator(dtype: np.dtype) -> np.dtype:
    """The dtype to add values of ``dtype`` in: float32 for the 16-bit floats, uint8 for bool."""
    if dtype == BFLOAT16 or dtype == np.float16:
        return np.dtype(np.float32)
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    return dtype


def element_op(op: ReduceOp, dtype: np.dtype) -> ReduceOp:
    """The operation on accumulators: for bool a maximum (any) or minimum (all); for a mean, the sum."""
    if dtype.kind == "b" and op is not ReduceOp.BXOR:
        return ReduceOp.MAX if op in (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.BOR) else ReduceOp.MIN
    return ReduceOp.SUM if op is ReduceOp.AVG else op


@functools.lru_cache(maxsize=4096)
def reduction_call(
    kind: str, op: str, shape: tuple[int, ...], dtype: np.dtype, name: str | None, root: int | None = None
) -> tuple[ReduceOp, Call]:
    """The operation and the call, cached; raises if values of ``dtype`` cannot be reduced by ``op``.

    ``root`` is the rank that the result is meant for; None for all.
    """
    operation = ReduceOp.of(op)
    check_transferable(dtype)
    accumulator(dtype)
    if operation is ReduceOp.AVG and dtype.kind in "biu":
        raise DTypeError(
            f"a mean of {dtype} values over ranks has no exact {dtype} result. "
            "Convert to a floating dtype first, or reduce with 'sum'."
        )
    if is_bitwise(operation) and dtype.kind not in "biu":
        raise DTypeError(
            f"Cannot use ReduceOp.{operation.name} with non-integral dtype {dtype}: it combines "
            "bits. Use 'sum'."
        )
    if is_extremum(operation) and dtype.kind == "c":
        raise DTypeError(f"{dtype} values have no order, so '{operation}' is not defined. Use 'sum'.")
    detail = operation.value if root is None else f"{operation.value} to rank {root}"
    return operation, Call(kind, detail, shape, dtype_name(dtype), name)


_COMBINE = {
    ReduceOp.SUM: np.add,
    ReduceOp.PRODUCT: np.multiply,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
    ReduceOp.BAND: np.bitwise_and,
    ReduceOp.BOR: np.bitwise_or,
    ReduceOp.BXOR: np.bitwise_xor,
}


def combine(arrays: Sequence[np.ndarray], op: ReduceOp, out: np.ndarray) -> None:
    """Combine ``arrays`` as a tree over their order, ((0, 1), (2, 3)), into ``out`` of accumulator dtype.

    The tree determines the bits: they depend on the number of ranks alone, not on the engine, the part of the
    array or the rank; two nodes of two ranks give the bits of one node of four. For a mean this is the sum,
    to be passed to ``divide``. ``out`` may be one of ``arrays``.
    """
    dtype = arrays[0].dtype
    ufunc = np.add if op is ReduceOp.SUM and dtype.kind == "f" else _COMBINE[element_op(op, dtype)]
    if dtype is not out.dtype and dtype != out.dtype:
        arrays = [array.view(np.uint8) if dtype.kind == "b" else array.astype(out.dtype) for array in arrays]
    _tree(arrays, ufunc, out)


def _tree(arrays: Sequence[np.ndarray], ufunc: np.ufunc, out: np.ndarray) -> None:
    count = len(arrays)
    if count <= 2:
        if count == 2:
            ufunc(arrays[0], arrays[1], out=out)
        else:
            np.copyto(out, arrays[0])
        return
    half = 1 << (count - 1).bit_length() - 1
    # `out` may be among the arrays, so it is written only when the others have been read.
    if count - half == 1:
        left, right = np.empty_like(out), arrays[half]
        _tree(arrays[:half], ufunc, left)
    else:
        left, right = out, np.empty_like(out)
        _tree(arrays[half:], ufunc, right)
        _tree(arrays[:half], ufunc, left)
    ufunc(left, right, out=out)


def divide(total: np.ndarray, size: int) -> None:
    """Divide ``total`` by ``size``, the number of ranks, in place."""
    if size & (size - 1):
        np.divide(total, size, out=total)
    else:
        # Three times as fast with the same bits, as the reciprocal of a power of two is exact.
        np.multiply(total, total.dtype.type(1 / size), out=total)


def reduce_into(arrays: Sequence[np.ndarray], op: ReduceOp, target: np.ndarray) -> None:
    """Reduce the arrays of all ranks into ``target`` of their dtype, which may be one of them.

    >>> target = np.empty(2)
    >>> reduce_into([np.array([1.0, 5.0]), np.array([3.0, 1.0])], ReduceOp.AVG, target)
    >>> target
    array([2., 3.])
    """
    if op is ReduceOp.SUM and len(arrays) == 2 and target.dtype.char in "fd":
        np.add(arrays[0], arrays[1], out=target)  # the general case below takes three times as long
        return
    wide = accumulator(target.dtype)
    total = target if wide is target.dtype or wide == target.dtype else np.empty(target.shape, wide)
    combine(arrays, op, total)
    if op is ReduceOp.AVG:
        divide(total, len(arrays))
    if total is not target:
        np.copyto(target, total, casting="unsafe")
