"""torch.distributed's collectives on tensors, over the process's communicator.

Under an interceptor (a recorder, a profiler) they are dispatched as ops (``operations.py``); otherwise they
run directly on the tensors' memory. Neither records gradients: the functions of ``nn/functional.py`` do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon.distributed.communication import operations, staging
from tenon.distributed.communication.calls import Work
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.reduction import ReduceOp, supports_complex
from tenon.distributed.messages import identity
from tenon.distributed.messages.identity import INPUT
from tenon.distributed.messages.process_group import Group, root_of, taking_part
from tenon.distributed.messages.results import (
    TensorWork,
    copy_into,
    done,
    put,
    rows_of,
    run,
    stack,
    store,
    target_of,
    writable_array,
    write_rows,
)
from tenon.engine.interceptor import SLOT
from tenon.errors import RankArgumentError, RankTypeError, ShapeError
from tenon.tensors.tensor import Tensor

INPUTS = (1, "input_tensor")
"""Where calls of two tensors have the one that is sent."""


def barrier(
    group: Group = None, async_op: bool = False, device_ids: object = None, timeout: object = None
) -> Work | None:
    """Block until every rank has called it.

    ``device_ids`` and ``timeout`` have no effect: ranks synchronize on the host, and the watchdog limits how
    long a rank waits (``docs/guide/distributed.md``).
    """
    communicator = taking_part(group, "barrier")
    if communicator is None:
        return None
    communicator.barrier(name=identity.place_name() if communicator.size > 1 else None)
    return done(async_op)


def monitored_barrier(group: Group = None, timeout: object = None, wait_all_ranks: bool = False) -> None:
    """``barrier`` under torch's other name, as errors always name the ranks that skip it.

    ``timeout`` has no effect, as for ``barrier``, nor has ``wait_all_ranks``: every missing rank is named.
    """
    communicator = taking_part(group, "monitored_barrier")
    if communicator is not None:
        communicator.barrier(name=identity.place_name() if communicator.size > 1 else None)


def all_reduce(
    tensor: Tensor, op: str = ReduceOp.SUM, group: Group = None, async_op: bool = False
) -> Work | None:
    """Reduce ``tensor`` over the ranks by ``op``, in place on every rank."""
    check_reducible(tensor, op)
    communicator = taking_part(group, "all_reduce")
    if communicator is None:
        return None
    name = identity.name_of(tensor) if communicator.size > 1 else None
    return all_reduce_named(tensor, op, communicator, async_op, name)


def all_reduce_named(
    tensor: Tensor, op: str, communicator: Communicator, async_op: bool, name: str | None
) -> Work | None:
    """``all_reduce`` under ``name``."""
    if SLOT.watched():
        return put(tensor, operations.all_reduce, tensor, async_op, op=str(op), group=communicator, name=name)
    host = staging.to_host(tensor)
    out = writable_array(host)
    if async_op and out is not None and out.flags.c_contiguous:
        return TensorWork(tensor, communicator.start_all_reduce(out, op, name=name))
    return store(tensor, communicator.all_reduce(host, op, out=out, name=name), async_op)


def check_reducible(tensor: Tensor, op: str) -> None:
    """Raise unless ``tensor`` is one that ``all_reduce`` can reduce by ``op``."""
    staging.check_tensor(tensor, "all_reduce")
    if op is not ReduceOp.SUM and tensor.is_complex() and not supports_complex(ReduceOp.of(op)):
        raise RankArgumentError(
            f"all_reduce does not support {ReduceOp.of(op).name} on complex tensors. "
            "Reduce torch.view_as_real(tensor)."
        )


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Broadcast ``tensor`` from rank ``src``, in place."""
    staging.check_tensor(tensor, "broadcast")
    communicator = taking_part(group, "broadcast")
    if communicator is None:
        return None
    root = root_of(communicator, src, group_src, "src")
    # Not strict: receiving ranks may call the tensor otherwise.
    name = identity.name_of(tensor, strict=False) if communicator.size > 1 else None
    if SLOT.watched():
        attrs = {"root": root, "group": communicator, "name": name}
        return put(tensor, operations.broadcast_from, tensor, async_op, **attrs)
    host = staging.to_host(tensor)
    return store(tensor, communicator.broadcast(host, root, out=writable_array(host), name=name), async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: str = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Reduce ``tensor`` over the ranks, in place on rank ``dst``; unchanged on the others."""
    staging.check_tensor(tensor, "reduce")
    communicator = taking_part(group, "reduce")
    if communicator is None:
        return None
    root = root_of(communicator, dst, group_dst, "dst")
    name = identity.name_of(tensor) if communicator.size > 1 else None
    if SLOT.watched():
        attrs = {"root": root, "op": str(ReduceOp.of(op)), "group": communicator, "name": name}
        total = operations.reduce_to(tensor.detach(), **attrs)
        if communicator.rank == root:
            copy_into(tensor, total)
        return done(async_op)
    work = communicator.reduce(staging.to_host(tensor), root, op, name=name)
    if communicator.rank == root:
        return store(tensor, work, async_op)
    return done(async_op)


def all_gather(
    tensor_list: Sequence[Tensor], tensor: Tensor, group: Group = None, async_op: bool = False
) -> Work | None:
    """Write the tensor of rank r into ``tensor_list[r]``, on every rank."""
    communicator = taking_part(group, "all_gather")
    if communicator is None:
        return None
    check_gatherable(tensor_list, tensor, communicator)
    name = identity.name_of(tensor, INPUT, strict=False) if communicator.size > 1 else None
    return all_gather_named(tensor_list, tensor, communicator, async_op, name)


def all_gather_named(
    tensor_list: Sequence[Tensor],
    tensor: Tensor,
    communicator: Communicator,
    async_op: bool,
    name: str | None,
) -> Work | None:
    """``all_gather`` under ``name``."""
    if SLOT.watched():
        write_rows(tensor_list, run(operations.all_gather, tensor, group=communicator, name=name))
        return done(async_op)
    rows = communicator.all_gather(staging.to_host(tensor), name=name).wait()
    for target, row in zip(tensor_list, rows, strict=True):
        staging.write(target, row)
    return done(async_op)


def check_gatherable(tensor_list: Sequence[Tensor], tensor: Tensor, communicator: Communicator) -> None:
    """Raise unless ``all_gather`` can write tensors of all ranks, each like ``tensor``, into the list."""
    staging.check_tensor(tensor, "all_gather")
    check_list("all_gather", "tensor_list", tensor_list, communicator)
    for index, target in enumerate(tensor_list):
        _check_like(target, tensor.shape, tensor, f"all_gather: tensor_list[{index}]")


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Group = None, async_op: bool = False
) -> Work | None:
    """Write the tensors of all ranks into ``output_tensor`` in rank order: stacked, concatenated or flat."""
    communicator = taking_part(group, "all_gather_into_tensor")
    if communicator is None:
        return None
    staging.check_tensor(input_tensor, "all_gather_into_tensor", "input_tensor")
    staging.check_tensor(output_tensor, "all_gather_into_tensor", "output_tensor")
    if output_tensor.numel() != communicator.size * input_tensor.numel():
        raise ShapeError(
            "all_gather_into_tensor: output tensor size must be equal to world_size times input tensor size: "
            f"output_tensor {list(output_tensor.shape)} must hold {communicator.size} times the elements of "
            f"input_tensor {list(input_tensor.shape)}."
        )
    if output_tensor.dtype != input_tensor.dtype:
        raise RankTypeError(
            f"all_gather_into_tensor: output_tensor is {output_tensor.dtype}, input_tensor "
            f"{input_tensor.dtype}. Give both one dtype."
        )
    name = identity.name_of(input_tensor, INPUTS, strict=False) if communicator.size > 1 else None
    if SLOT.watched():
        attrs = {"group": communicator, "name": name}
        return put(output_tensor, operations.all_gather, input_tensor, async_op, **attrs)
    host = staging.to_host(input_tensor)
    out = target_of(output_tensor, host, (communicator.size, *host.shape))
    return store(output_tensor, communicator.all_gather(host, out, name=name), async_op, out)


all_gather_single = all_gather_into_tensor
"""torch's newer name."""


def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: str = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """Reduce ``input`` over the ranks; write part r of ``size`` equal parts into ``output`` of rank r."""
    communicator = taking_part(group, "reduce_scatter_tensor")
    if communicator is None:
        return None
    staging.check_tensor(input, "reduce_scatter_tensor", "input")
    staging.check_tensor(output, "reduce_scatter_tensor", "output")
    if input.numel() != communicator.size * output.numel():
        raise ShapeError(
            f"reduce_scatter_tensor: input {list(input.shape)} must hold {communicator.size} times the "
            f"elements of output {list(output.shape)}, one part per rank."
        )
    name = identity.name_of(input, (1, "input")) if communicator.size > 1 else None
    if SLOT.watched():
        rows = rows_of(input, (communicator.size, *output.shape))
        attrs = {"op": str(op), "group": communicator, "name": name}
        return put(output, operations.reduce_scatter, rows, async_op, **attrs)
    host = staging.to_host(input).reshape(communicator.size, *output.shape)
    out = target_of(output, host, host.shape[1:])
    return store(output, communicator.reduce_scatter(host, op, out, name=name), async_op, out)


reduce_scatter_single = reduce_scatter_tensor
"""torch's newer name."""


def reduce_scatter(
    output: Tensor,
    input_list: Sequence[Tensor],
    op: str = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """Reduce ``input_list[r]`` over the ranks and write it into ``output`` of rank r."""
    communicator = taking_part(group, "reduce_scatter")
    if communicator is None:
        return None
    for part in input_list:
        staging.check_tensor(part, "reduce_scatter", "input_list")
    shapes = [list(part.shape) for part in input_list]
    if len(shapes) != communicator.size or any(shape != list(output.shape) for shape in shapes):
        raise ShapeError(
            f"reduce_scatter: input_list has shapes {shapes}; {communicator.size} ranks need one tensor "
            f"each, of output's shape {list(output.shape)}."
        )
    name = identity.name_of(input_list[0], (1, "input_list")) if communicator.size > 1 else None
    if SLOT.watched():
        attrs = {"op": str(op), "group": communicator, "name": name}
        return put(output, operations.reduce_scatter, stack(input_list), async_op, **attrs)
    rows = np.stack([staging.to_host(part) for part in input_list])
    out = target_of(output, rows, rows.shape[1:])
    return store(output, communicator.reduce_scatter(rows, op, out, name=name), async_op, out)


def gather(
    tensor: Tensor,
    gather_list: Sequence[Tensor] | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Write the tensor of rank r into ``gather_list[r]`` of rank ``dst``; other ranks pass no list."""
    communicator = taking_part(group, "gather")
    if communicator is None:
        return None
    root = 0 if dst is None and group_dst is None else root_of(communicator, dst, group_dst, "dst")
    staging.check_tensor(tensor, "gather")
    if communicator.rank == root:
        check_list("gather", "gather_list", gather_list or (), communicator)
        for index, target in enumerate(gather_list or ()):
            _check_like(target, tensor.shape, tensor, f"gather: gather_list[{index}]")
    staging.refuse_recording("gather")
    name = identity.name_of(tensor, strict=False) if communicator.size > 1 else None
    rows = communicator.gather(staging.to_host(tensor), root, name=name)
    if rows is not None:
        for target, row in zip(gather_list or (), rows, strict=True):
            staging.write(target, row)
    return done(async_op)


def scatter(
    tensor: Tensor,
    scatter_list: Sequence[Tensor] | None = None,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Write ``scatter_list[r]`` of rank ``src`` into ``tensor`` of rank r; other ranks pass no list."""
    communicator = taking_part(group, "scatter")
    if communicator is None:
        return None
    root = 0 if src is None and group_src is None else root_of(communicator, src, group_src, "src")
    host = staging.to_host(staging.check_tensor(tensor, "scatter"))
    rows = None
    if communicator.rank == root:
        check_list("scatter", "scatter_list", scatter_list or (), communicator)
        for index, part in enumerate(scatter_list or ()):
            _check_like(part, tensor.shape, tensor, f"scatter: scatter_list[{index}]")
        rows = np.stack([staging.to_host(part) for part in scatter_list or ()])
    staging.refuse_recording("scatter")
    name = identity.name_of(tensor, strict=False) if communicator.size > 1 else None
    staging.write(tensor, communicator.scatter(rows, np.empty(host.shape, host.dtype), root, name=name))
    return done(async_op)


def check_list(function: str, name: str, tensors: Sequence[Tensor], communicator: Communicator) -> None:
    """Raise ``ShapeError`` unless the list has one tensor for each rank."""
    if len(tensors) != communicator.size:
        raise ShapeError(
            f"{function}: {name} has {len(tensors)} tensors for {communicator.size} ranks. Make one per rank."
        )


def _check_like(target: Tensor, shape: Sequence[int], source: Tensor, argument: str) -> None:
    """Raise unless ``target`` is a tensor of ``shape`` with the dtype of ``source``."""
    staging.check_tensor(target, argument)
    if tuple(target.shape) != tuple(shape) or target.dtype != source.dtype:
        raise ShapeError(
            f"{argument} is {target.dtype}{list(target.shape)}, but {source.dtype}{list(shape)} is needed."
        )
