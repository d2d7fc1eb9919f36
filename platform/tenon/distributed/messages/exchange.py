"""torch.distributed's all-to-all collectives: every rank sends a different tensor to every rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon.distributed.communication import operations, staging
from tenon.distributed.communication.calls import Work
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.reduction import ReduceOp
from tenon.distributed.messages import identity
from tenon.distributed.messages.collectives import check_list
from tenon.distributed.messages.process_group import Group, taking_part
from tenon.distributed.messages.results import (
    done,
    put,
    rows_of,
    run,
    stack,
    store,
    target_of,
    write_rows,
)
from tenon.engine.interceptor import SLOT
from tenon.errors import ShapeError
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.tensor import Tensor


def all_to_all(
    output_tensor_list: Sequence[Tensor],
    input_tensor_list: Sequence[Tensor],
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """Send ``input_tensor_list[r]`` to rank r, and write its tensor into ``output_tensor_list[r]``."""
    communicator = taking_part(group, "all_to_all")
    if communicator is None:
        return None
    for argument, tensors in (
        ("output_tensor_list", output_tensor_list),
        ("input_tensor_list", input_tensor_list),
    ):
        check_list("all_to_all", argument, tensors, communicator)
        for tensor in tensors:
            staging.check_tensor(tensor, "all_to_all", argument)
    first, where = input_tensor_list[0], (1, "input_tensor_list")
    name = identity.name_of(first, where, strict=False) if communicator.size > 1 else None
    _exchange(output_tensor_list, input_tensor_list, communicator, name)
    return done(async_op)


def _exchange(
    output_tensor_list: Sequence[Tensor],
    input_tensor_list: Sequence[Tensor],
    communicator: Communicator,
    name: str | None,
) -> None:
    """``all_to_all`` under ``name``."""
    first = tuple(input_tensor_list[0].shape)
    even = all(tuple(tensor.shape) == first for tensor in (*input_tensor_list, *output_tensor_list))
    question = communicator.all_gather(np.array([even]), name=name, detail="whether all_to_all is even")
    if bool(question.wait().all()):
        rows = run(operations.all_to_all, stack(input_tensor_list), group=communicator, name=name)
        write_rows(output_tensor_list, rows)
        return
    staging.refuse_recording("all_to_all of different shapes")
    received = _exchange_uneven([staging.to_host(tensor) for tensor in input_tensor_list], communicator)
    for rank, (target, row) in enumerate(zip(output_tensor_list, received, strict=True)):
        if row.size != target.numel():
            raise ShapeError(
                f"all_to_all: rank {rank} sent {row.size} elements to rank {communicator.rank}, whose "
                f"output_tensor_list[{rank}] is {list(target.shape)}."
            )
        staging.write(target, row)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """Send part r of ``input``, split along its first axis, to rank r; ``output`` is the received parts."""
    communicator = taking_part(group, "all_to_all_single")
    if communicator is None:
        return None
    staging.check_tensor(input, "all_to_all_single", "input")
    staging.check_tensor(output, "all_to_all_single", "output")
    name = identity.name_of(input, (1, "input"), strict=False) if communicator.size > 1 else None
    if not output_split_sizes and not input_split_sizes:
        size = communicator.size
        if input.ndim == 0 or input.shape[0] % size or output.numel() != input.numel():
            raise ShapeError(
                f"all_to_all_single: input {list(input.shape)} and output {list(output.shape)} must have the "
                f"same elements, and a first axis that {size} ranks divide. Or give split sizes."
            )
        shape = (size, input.shape[0] // size, *input.shape[1:])
        if SLOT.watched():
            rows = rows_of(input, shape)
            return put(output, operations.all_to_all, rows, async_op, group=communicator, name=name)
        host = staging.to_host(input).reshape(shape)
        out = target_of(output, host, shape)
        return store(output, communicator.all_to_all(host, out, name=name), async_op, out)
    parts = split(input, input_split_sizes, communicator.size)
    _exchange(split(output, output_split_sizes, communicator.size), parts, communicator, name)
    return done(async_op)


def split(tensor: Tensor, sizes: Sequence[int] | None, count: int) -> list[Tensor]:
    """Views of ``count`` parts of ``tensor`` along its first axis, of ``sizes`` or of equal length."""
    rows = tensor.shape[0] if tensor.ndim else 0
    lengths = list(sizes) if sizes else [rows // count] * count
    if len(lengths) != count or sum(lengths) != rows:
        raise ShapeError(
            f"all_to_all_single: split sizes {lengths} must be {count} numbers that add up to {rows}, the "
            f"rows of {list(tensor.shape)}."
        )
    ends = np.cumsum(lengths).tolist()
    with no_grad():
        return [tensor[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def _exchange_uneven(parts: Sequence[np.ndarray], communicator: Communicator) -> list[np.ndarray]:
    """All-to-all of flat parts of any lengths: exchange the lengths, then rows padded to the longest."""
    lengths = np.array([part.size for part in parts], np.int64)
    received_lengths = communicator.all_to_all(lengths, name="lengths for all_to_all").wait()
    widest = np.array([lengths.max()])
    width = int(communicator.all_reduce(widest, ReduceOp.MAX, name="longest of all_to_all").wait()[0])
    rows = np.zeros((communicator.size, width), parts[0].dtype)
    for row, part in zip(rows, parts, strict=True):
        row[: part.size] = part.reshape(-1)
    received = communicator.all_to_all(rows).wait()
    return [row[:length] for row, length in zip(received, received_lengths, strict=True)]
