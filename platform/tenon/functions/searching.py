"""Select and search elements: ``where``, ``searchsorted``, ``bucketize``, ``isin``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tenon import ops
from tenon.dtypes import scalar_name
from tenon.engine.value import Value
from tenon.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from tenon.functions.derived import refuse, write_into
from tenon.functions.predicates import is_tensor
from tenon.kernels.promotion import result_type
from tenon.kernels.whole_arrays import beside
from tenon.tensors.creation.create import as_tensor
from tenon.tensors.wrong_arguments import only_numbers

if TYPE_CHECKING:
    from tenon.device import Device
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Number

__all__ = ["bucketize", "isin", "nonzero", "searchsorted", "where"]


def nonzero(
    input: Tensor, *, out: Tensor | None = None, as_tuple: bool = False
) -> Tensor | tuple[Tensor, ...]:
    """Return the indices of the non-zero elements as the rows of a matrix, or as a tuple of its columns."""
    if not is_tensor(input):
        raise refuse("nonzero", input)
    if out is None:
        return input.nonzero(as_tuple=as_tuple)
    if as_tuple:
        raise ArgumentError("nonzero does not support the out kwarg when as_tuple is True")
    if out.raw.dtype != np.int64:
        raise DTypeError(
            "nonzero: Expected out tensor to have scalar type Long but got scalar type "
            f"{scalar_name(out.dtype)}"
        )
    return write_into(out, input.nonzero())


def where(
    condition: Tensor,
    input: Tensor | Number | None = None,
    other: Tensor | Number | None = None,
    *,
    out: Tensor | None = None,
) -> Any:  # a tensor; without ``input`` a tuple of them
    """Return elements of ``input`` where ``condition`` is true, and of ``other`` elsewhere (torch.where).

    All are broadcast; ``input`` and ``other`` may be numbers. With ``condition`` alone, return the indices
    where it is not zero, as a tuple. DTypeError unless ``condition`` is a bool tensor.
    """
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    if condition.raw.dtype.kind != "b" and condition.raw.dtype != np.uint8:
        raise DTypeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype {condition.dtype}"
        )
    if condition.raw.dtype.kind != "b":
        condition = condition.bool()
    if not (is_tensor(input) and is_tensor(other)):
        input, other = _operands(input, other, condition.device)
    result = ops.where(condition, input, other)
    return write_into(out, result)


def _operands(
    input: Tensor | Number | None, other: Tensor | Number | None, device: Device
) -> tuple[Tensor | Number, Tensor | Number]:
    """Return operands that are not both tensors: two numbers as tensors of their common dtype."""
    if input is None or other is None:
        raise TypeError("where() takes a condition, or a condition, input and other: one of these is None")
    only_numbers(input, other)
    if is_tensor(input) or is_tensor(other):
        return input, other
    kind = result_type(input, other)
    return as_tensor(input, kind, device), as_tensor(other, kind, device)


def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor | float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return the indices at which ``input`` can be inserted into ``sorted_sequence`` so that it stays sorted.

    The sequence ascends along its last axis, or is sorted by the indices ``sorter``. The index is before
    equal elements, unless ``right`` or ``side="right"``. Indices are int64, or int32 with ``out_int32``.
    """
    if side not in (None, "left", "right"):
        raise ArgumentError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise ArgumentError(
            "torch.searchsorted(): side and right can't be set to opposites, got side of left while right "
            "was True"
        )
    if sorter is not None:
        sorted_sequence = _sorted_by(sorted_sequence, sorter)
    only_numbers(input)
    values = input if isinstance(input, Value) else as_tensor(input, device=sorted_sequence.device)
    if not values.raw.ndim and sorted_sequence.raw.ndim != 1:
        raise ShapeError(
            "torch.searchsorted(): input value can be a scalar only when boundaries tensor dimension is 1,"
            f" but we got boundaries tensor dim({sorted_sequence.raw.ndim})"
        )
    index_dtype = np.int32 if out_int32 else np.int64
    if out is not None and out.raw.dtype != index_dtype:
        raise DTypeError(
            "torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or Long(int64)"
            f" depending on whether out_int32 flag is True, but we got {scalar_name(out.dtype)} and out_int32"
            f" flag is {out_int32}"
        )
    if sorted_sequence.raw.ndim != 1 and tuple(sorted_sequence.raw.shape[:-1]) != tuple(
        values.raw.shape[:-1]
    ):
        raise ShapeError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of "
            "boundaries tensor and "
            f"input value tensor must match, but we got boundaries tensor {list(sorted_sequence.raw.shape)} "
            "and input value tensor "
            f"{list(values.raw.shape)}"
        )
    result = ops.searchsorted(sorted_sequence, values, right=right or side == "right")
    if out_int32:
        result = result.int()
    return write_into(out, result)


def _sorted_by(sequence: Tensor, sorter: Tensor) -> Tensor:
    """Return ``sequence`` in the order of ``sorter`` along its last axis."""
    if tuple(sorter.raw.shape) != tuple(sequence.raw.shape):
        raise ShapeError(
            "torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor "
            f"{list(sequence.raw.shape)} and got sorter tensor {list(sorter.raw.shape)}"
        )
    if sorter.raw.dtype != np.int64:
        raise DTypeError(
            "torch.searchsorted(): sorter must be a tensor of long dtype but got dtype "
            f"{scalar_name(sorter.dtype)}"
        )
    try:
        return sequence.gather(-1, sorter)
    except IndexRangeError as error:
        raise IndexRangeError(f"torch.searchsorted(): sorter index out of range: {error}") from None


def bucketize(
    input: Tensor,
    boundaries: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return the index of each element's bucket between the ascending ``boundaries``, as int64.

    An element that equals a boundary is in the bucket below it; with ``right`` in the bucket above.
    """
    if boundaries.raw.ndim != 1:
        raise ShapeError(
            f"bucketize: boundaries tensor must be 1 dimension, but got dim({boundaries.raw.ndim})"
        )
    return searchsorted(boundaries, input, out_int32=out_int32, right=right, out=out)


def isin(
    elements: Tensor | Number,
    test_elements: Tensor | Number,
    *,
    assume_unique: bool = False,
    invert: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return whether each of ``elements`` occurs in ``test_elements``, as booleans, negated if ``invert``.

    Either may be a number.
    """
    only_numbers(elements, test_elements)
    like: Any = elements if isinstance(elements, Value) else test_elements  # the one that is a tensor
    x, pool = (
        e if isinstance(e, Value) else beside(like, as_tensor(e, device=like.device))
        for e in (elements, test_elements)
    )
    ordered = pool.reshape(-1).sort().values
    size = ordered.raw.shape[0]
    if not size:
        matches = ops.new_full(x.detach(), shape=tuple(x.raw.shape), value=False, dtype=np.dtype(np.bool_))
    else:
        index = ops.searchsorted(ordered, x.reshape(-1)).clamp(max=size - 1)
        matches = ops.eq(ordered[index].reshape(x.raw.shape), x)
    result = ops.logical_not(matches) if invert else matches
    return write_into(out, result)
