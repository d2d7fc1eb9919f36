"""Differentiable collectives: torch.distributed.nn.functional's names.

The gradient of a collective is a collective, so all ranks must run backward through it. Results are new
tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenon.distributed.communication import operations
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.reduction import ReduceOp
from tenon.distributed.communication.staging import check_tensor
from tenon.distributed.messages import results
from tenon.distributed.messages.identity import name_of
from tenon.distributed.messages.process_group import Group, get_group_rank, member
from tenon.engine.op import table
from tenon.errors import ShapeError
from tenon.tensors.tensor import Tensor


def all_reduce(tensor: Tensor, op: str = ReduceOp.SUM, group: Group = None) -> Tensor:
    """``tensor`` reduced over the ranks by ``op``."""
    communicator = member(group)
    name = name_of(check_tensor(tensor, "all_reduce")) if communicator.size > 1 else None
    return _run(operations.all_reduce, tensor, op=str(ReduceOp.of(op)), group=communicator, name=name)


def broadcast(tensor: Tensor, src: int, group: Group = None) -> Tensor:
    """The tensor of rank ``src``, on every rank."""
    communicator = member(group)
    root = get_group_rank(communicator, src)
    name = name_of(check_tensor(tensor, "broadcast"), strict=False) if communicator.size > 1 else None
    return _run(operations.broadcast_from, tensor, root=root, group=communicator, name=name)


def reduce(tensor: Tensor, dst: int, op: str = ReduceOp.SUM, group: Group = None) -> Tensor:
    """``tensor`` reduced over the ranks by ``op`` on rank ``dst``; zeros elsewhere."""
    communicator = member(group)
    root = get_group_rank(communicator, dst)
    name = name_of(check_tensor(tensor, "reduce")) if communicator.size > 1 else None
    op = str(ReduceOp.of(op))
    return _run(operations.reduce_to, tensor, op=op, root=root, group=communicator, name=name)


def all_gather(tensor: Tensor, group: Group = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks."""
    communicator = member(group)
    name = name_of(check_tensor(tensor, "all_gather"), strict=False) if communicator.size > 1 else None
    return _unbind(_run(operations.all_gather, tensor, group=communicator, name=name))


def gather(tensor: Tensor, dst: int = 0, group: Group = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks on rank ``dst``; zeros elsewhere."""
    communicator = member(group)
    root = get_group_rank(communicator, dst)
    name = name_of(check_tensor(tensor, "gather"), strict=False) if communicator.size > 1 else None
    detail = f"to rank {root}"
    rows = _run(operations.all_gather, tensor, group=communicator, name=name, detail=detail)
    if communicator.rank != root:
        rows = table.mul(rows, 0)
    return _unbind(rows)


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Group = None) -> Tensor:
    """``tensors[rank]`` of rank ``src``; other ranks must pass tensors of the same shapes."""
    communicator = member(group)
    rows = _stack(tensors, communicator, "scatter")
    root = get_group_rank(communicator, src)
    name = name_of(tensors[0], (0, "tensors"), strict=False) if communicator.size > 1 else None
    detail = f"from rank {root}"
    return _unbind(_run(operations.all_to_all, rows, group=communicator, name=name, detail=detail))[root]


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: str = ReduceOp.SUM, group: Group = None
) -> Tensor:
    """``input_list[rank]`` reduced over the ranks by ``op``.

    ``output`` has no effect: results are new tensors, through which gradients flow.
    """
    communicator = member(group)
    rows = _stack(input_list, communicator, "reduce_scatter")
    name = name_of(input_list[0], (1, "input_list")) if communicator.size > 1 else None
    op = str(ReduceOp.of(op))
    return _run(operations.reduce_scatter, rows, op=op, group=communicator, name=name)


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Group = None
) -> tuple[Tensor, ...]:
    """``input_tensor_list[rank]`` of each rank, in rank order; all tensors must have one shape.

    ``output_tensor_list`` has no effect: results are new tensors, through which gradients flow.
    """
    communicator = member(group)
    rows = _stack(input_tensor_list, communicator, "all_to_all")
    argument = (1, "input_tensor_list")
    name = name_of(input_tensor_list[0], argument, strict=False) if communicator.size > 1 else None
    return _unbind(_run(operations.all_to_all, rows, group=communicator, name=name))


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Group = None,
) -> Tensor:
    """Split ``input`` into equal parts along its first axis, send part r to rank r, concatenate the received.

    ``output`` has no effect: results are new tensors, through which gradients flow.
    """
    communicator = member(group)
    check_tensor(input, "all_to_all_single")
    size = communicator.size
    lengths = {*(output_split_sizes or ()), *(input_split_sizes or ())}
    if input.ndim == 0 or input.shape[0] % size or lengths - {input.shape[0] // size}:
        raise ShapeError(
            f"all_to_all_single: with gradients, {size} ranks exchange equal parts; input is "
            f"{list(input.shape)}, the split sizes are {sorted(lengths)}. Pad the parts to one length."
        )
    name = name_of(input, (1, "input"), strict=False) if size > 1 else None
    rows = table.reshape(input, shape=(size, input.shape[0] // size, *input.shape[1:]))
    exchanged = _run(operations.all_to_all, rows, group=communicator, name=name)
    joined: Tensor = table.reshape(exchanged, shape=tuple(input.shape))
    return joined


def _run(operation: Callable[..., Tensor], tensor: Tensor, **attrs: object) -> Tensor:
    return operation(tensor, **attrs)


def _unbind(rows: Tensor) -> tuple[Tensor, ...]:
    return tuple(rows[index] for index in range(rows.shape[0]))


def _stack(tensors: Sequence[Tensor], communicator: Communicator, function: str) -> Tensor:
    """``tensors`` as rows of one; raises ``ShapeError`` unless there is one per rank, all of one shape."""
    shapes = [list(check_tensor(tensor, function).shape) for tensor in tensors]
    if len(shapes) != communicator.size or any(shape != shapes[0] for shape in shapes):
        raise ShapeError(
            f"{function}: {communicator.size} ranks need one tensor each, all of one shape, not {shapes}."
        )
    return results.stack(tensors)
