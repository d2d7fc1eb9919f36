"""torch.distributed's collectives on lists of tensors, which are communicated one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.distributed.communication.calls import ReductionOptions
from tenon.distributed.communication.futures import Future
from tenon.distributed.communication.reduction import ReduceOp
from tenon.distributed.messages import identity
from tenon.distributed.messages.collectives import (
    all_gather_named,
    all_reduce,
    all_reduce_named,
    check_gatherable,
    check_reducible,
)
from tenon.distributed.messages.process_group import Group, taking_part
from tenon.distributed.messages.results import TensorWork
from tenon.errors import ShapeError
from tenon.tensors.tensor import Tensor


def all_reduce_coalesced(
    tensors: Sequence[Tensor] | Tensor, op: str = ReduceOp.SUM, group: Group = None, async_op: bool = False
) -> Future[list[Tensor]] | None:
    """``all_reduce`` each of ``tensors``; with ``async_op``, return a future of their list."""
    communicator = taking_part(group, "all_reduce_coalesced")
    if communicator is None:
        return None
    reduced = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    for tensor in reduced:
        check_reducible(tensor, op)
    names: Sequence[str | None] = [None] * len(reduced)
    if communicator.size > 1:
        names = identity.names_of(reduced, (0, "tensors"))
    for tensor, name in zip(reduced, names, strict=True):
        all_reduce_named(tensor, op, communicator, False, name)
    return _future(reduced) if async_op else None


def all_gather_coalesced(
    output_tensor_lists: Sequence[Sequence[Tensor]],
    input_tensor_list: Sequence[Tensor],
    group: Group = None,
    async_op: bool = False,
) -> Future[list[Tensor]] | None:
    """Write tensor i of rank r into ``output_tensor_lists[r][i]``, on every rank."""
    communicator = taking_part(group, "all_gather_coalesced")
    if communicator is None:
        return None
    lengths = [len(tensors) for tensors in output_tensor_lists]
    if lengths != [len(input_tensor_list)] * communicator.size:
        raise ShapeError(
            f"all_gather_coalesced: output_tensor_lists has {lengths} tensors; {communicator.size} ranks "
            f"need one list each, of {len(input_tensor_list)} tensors, as many as input_tensor_list."
        )
    rows = [[tensors[index] for tensors in output_tensor_lists] for index in range(len(input_tensor_list))]
    for row, tensor in zip(rows, input_tensor_list, strict=True):
        check_gatherable(row, tensor, communicator)
    names: Sequence[str | None] = [None] * len(rows)
    if communicator.size > 1:
        names = identity.names_of(input_tensor_list, (1, "input_tensor_list"), strict=False)
    for row, tensor, name in zip(rows, input_tensor_list, names, strict=True):
        all_gather_named(row, tensor, communicator, False, name)
    return _future([tensor for tensors in output_tensor_lists for tensor in tensors]) if async_op else None


def begin_all_reduce(
    tensors: Sequence[Tensor] | Tensor, op: str | ReductionOptions | None, group: Group
) -> TensorWork:
    """torch's ``ProcessGroup.allreduce`` of a tensor or a list of one; ``op`` None is a sum."""
    (tensor,) = [tensors] if isinstance(tensors, Tensor) else tensors
    operation: Any = getattr(op, "reduceOp", op)  # of options; anything else is named by ``all_reduce``
    work = all_reduce(tensor, ReduceOp.SUM if operation is None else operation, group, async_op=True)
    assert isinstance(work, TensorWork)
    return work


def _future(tensors: list[Tensor]) -> Future[list[Tensor]]:
    """A completed future of ``tensors``."""
    future: Future[list[Tensor]] = Future()
    future.set_result(tensors)
    return future
