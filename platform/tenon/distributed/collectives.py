"""torch.distributed's names over the process's communicator.

``init_process_group`` is optional and takes what torch scripts pass: the launcher has decided everything
already. Values that torch would pickle travel as JSON (``objects.py``).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.core.tensor import Tensor
from tenon.distributed import objects, staging, world
from tenon.distributed.calls import Work
from tenon.distributed.communicator import Communicator
from tenon.distributed.reduction import ReduceOp
from tenon.distributed.startup import launched
from tenon.errors import CommunicatorError, LaunchError, ShapeError

TORCH_BACKENDS = frozenset({"gloo", "nccl", "ucc", "mpi", "cpu:gloo,cuda:nccl"})
_destroyed = False


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: Any = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Join the other ranks now rather than at the first use; calling it again changes nothing.

    torch's backend names are accepted, since MPI does their work; any other must be a communicator's name.
    ``world_size`` and ``rank`` are checked against the launcher's if given.
    """
    global _destroyed
    if (init_method or "env://") != "env://" or store is not None:
        raise LaunchError(
            f"init_method={init_method!r}, store={store!r}: ranks find each other through the launcher. "
            "Leave both out and start with: mpirun -n N python ..."
        )
    communicator = world.get_communicator()
    _destroyed = False
    if backend is not None and backend not in TORCH_BACKENDS and backend != communicator.name:
        raise LaunchError(
            f"backend={backend!r} was asked for, but this process speaks through {communicator.name!r}. "
            f"Leave it out, or set TENON_COMMUNICATOR={backend} before the start."
        )
    if world_size not in (-1, communicator.size) or rank not in (-1, communicator.rank):
        raise LaunchError(
            f"init_process_group(world_size={world_size}, rank={rank}), but the launcher made this process "
            f"rank {communicator.rank} of {communicator.size}. Leave both out."
        )


def destroy_process_group(group: Communicator | None = None) -> None:
    """Part from the other ranks; all must do so at the same point. Communicating again starts anew."""
    global _destroyed
    communicator = world.current() if group is None else group
    if communicator is not None:
        communicator.close()
        world.set_process_communicator(None)
    _destroyed = True


def is_available() -> bool:
    """Always true: alone, every collective works on one rank."""
    return True


def is_mpi_available() -> bool:
    """Whether mpi4py is installed; MPI itself is not loaded."""
    return importlib.util.find_spec("mpi4py") is not None


def is_initialized() -> bool:
    """Whether there is a communicator, or a launcher, so that the first use makes one."""
    return world.current() is not None or (launched() is not None and not _destroyed)


def get_rank(group: Communicator | None = None) -> int:
    """This process's number among all ranks."""
    return _group(group).rank


def get_world_size(group: Communicator | None = None) -> int:
    """The number of ranks; 1 without a launcher."""
    return _group(group).size


def get_local_rank(group: Communicator | None = None) -> int:
    """This process's number among the ranks of its node."""
    return _group(group).local_rank


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """``get_local_rank`` under torch's name; there is always one, so the fallback is never needed."""
    return get_local_rank()


def get_backend(group: Communicator | None = None) -> str:
    """The communicator's name, such as "mpi"."""
    return _group(group).name


def barrier(
    group: Communicator | None = None, async_op: bool = False, device_ids: Any = None, timeout: Any = None
) -> Work | None:
    """Wait until every rank has come here."""
    _group(group).barrier()
    return Work(np.empty(0)) if async_op else None


def all_reduce(
    tensor: Tensor, op: str = ReduceOp.SUM, group: Communicator | None = None, async_op: bool = False
) -> Work | None:
    """Replace ``tensor`` on every rank by the sum over the ranks, or what ``op`` says."""
    host = staging.to_host(staging.check_tensor(tensor, "all_reduce"))
    return _into(tensor, _group(group).all_reduce(host, op, out=_own(host)), async_op)


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Communicator | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Replace ``tensor`` on every rank by that of rank ``src``."""
    host = staging.to_host(staging.check_tensor(tensor, "broadcast"))
    root = _root(src, group_src, "src")
    return _into(tensor, _group(group).broadcast(host, root, out=_own(host)), async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: str = ReduceOp.SUM,
    group: Communicator | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Replace ``tensor`` on rank ``dst`` by the sum over the ranks; the others keep theirs."""
    communicator = _group(group)
    root = _root(dst, group_dst, "dst")
    work = communicator.all_reduce(staging.to_host(staging.check_tensor(tensor, "reduce")), op)
    if communicator.rank == root:
        return _into(tensor, work, async_op)
    return work if async_op else None


def all_gather(
    tensor_list: Sequence[Tensor], tensor: Tensor, group: Communicator | None = None, async_op: bool = False
) -> Work | None:
    """Write the tensor of rank r into ``tensor_list[r]``, on every rank."""
    communicator = _group(group)
    if len(tensor_list) != communicator.size:
        raise ShapeError(
            f"all_gather: tensor_list has {len(tensor_list)} tensors for {communicator.size} ranks. "
            "Make one per rank."
        )
    for index, target in enumerate(tensor_list):
        _check_like(target, tensor.shape, tensor, f"all_gather: tensor_list[{index}]")
    work = communicator.all_gather(staging.to_host(staging.check_tensor(tensor, "all_gather")))
    for target, row in zip(tensor_list, work.wait(), strict=True):
        staging.write(target, row)
    return work if async_op else None


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Communicator | None = None, async_op: bool = False
) -> Work | None:
    """Write the tensors of all ranks into one: stacked or, with ``size * n`` rows, one after another."""
    communicator = _group(group)
    host = staging.to_host(staging.check_tensor(input_tensor, "all_gather_into_tensor", "input_tensor"))
    stacked = (communicator.size, *host.shape)
    joined = (communicator.size * host.shape[0], *host.shape[1:]) if host.ndim else (communicator.size,)
    shape = stacked if tuple(output_tensor.shape) == stacked else joined
    _check_like(output_tensor, shape, input_tensor, "all_gather_into_tensor: output_tensor")
    return _into(output_tensor, communicator.all_gather(host), async_op)


def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: str = ReduceOp.SUM,
    group: Communicator | None = None,
    async_op: bool = False,
) -> Work | None:
    """Sum ``input`` over the ranks; write this rank's part, one of ``size`` equal ones, into ``output``."""
    communicator = _group(group)
    host = staging.to_host(staging.check_tensor(input, "reduce_scatter_tensor", "input"))
    staging.check_tensor(output, "reduce_scatter_tensor", "output")
    if host.size != communicator.size * output.numel():
        raise ShapeError(
            f"reduce_scatter_tensor: input {list(host.shape)} must hold {communicator.size} times the "
            f"elements of output {list(output.shape)}, one part per rank."
        )
    rows = host.reshape(communicator.size, *output.shape)
    return _into(output, communicator.reduce_scatter(rows, op), async_op)


def reduce_scatter(
    output: Tensor,
    input_list: Sequence[Tensor],
    op: str = ReduceOp.SUM,
    group: Communicator | None = None,
    async_op: bool = False,
) -> Work | None:
    """Sum ``input_list[r]`` over the ranks and write it into ``output`` of rank r."""
    communicator = _group(group)
    rows = [
        staging.to_host(staging.check_tensor(part, "reduce_scatter", "input_list")) for part in input_list
    ]
    if len(rows) != communicator.size or any(row.shape != tuple(output.shape) for row in rows):
        raise ShapeError(
            f"reduce_scatter: input_list has shapes {[list(row.shape) for row in rows]}; {communicator.size} "
            f"ranks need one tensor each, of output's shape {list(output.shape)}."
        )
    return _into(output, communicator.reduce_scatter(np.stack(rows), op), async_op)


def all_gather_object(object_list: list[Any], obj: Any, group: Communicator | None = None) -> None:
    """Put rank r's ``obj`` into ``object_list[r]``: plain values only, nothing is pickled."""
    communicator = _group(group)
    if len(object_list) != communicator.size:
        raise ShapeError(
            f"all_gather_object: object_list has {len(object_list)} places for {communicator.size} ranks. "
            "Make it [None] * get_world_size()."
        )
    payloads = communicator.all_gather_bytes(objects.encode(obj), name="all_gather_object")
    object_list[:] = [objects.decode(payload) for payload in payloads]


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Communicator | None = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """Replace the values in ``object_list`` by those of rank ``src``: plain values, nothing is pickled."""
    communicator = _group(group)
    root = _root(src, group_src, "src")
    mine = objects.encode(object_list) if communicator.rank == root else b""
    payloads = communicator.all_gather_bytes(mine, name=f"broadcast_object_list from rank {root}")
    received = objects.decode(payloads[root])
    if len(received) != len(object_list):
        raise ShapeError(
            f"broadcast_object_list: rank {root} sent {len(received)} values, rank {communicator.rank} has "
            f"places for {len(object_list)}. Pass lists of equal length."
        )
    object_list[:] = received


def _group(group: Any) -> Communicator:
    if group is None:
        return world.get_communicator()
    if not isinstance(group, Communicator):
        raise CommunicatorError(
            f"group is a {type(group).__name__}. Pass a Communicator, or None for all ranks."
        )
    return group


def _root(rank: int | None, group_rank: int | None, argument: str) -> int:
    if (rank is None) == (group_rank is None):
        raise CommunicatorError(f"give either {argument} or group_{argument}, not {rank} and {group_rank}.")
    return int(rank if rank is not None else group_rank or 0)


def _own(host: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """The tensor's memory as the place for the result; broadcast views have none of their own."""
    return host if host.flags.writeable and 0 not in host.strides else None


def _into(tensor: Tensor, work: Work, async_op: bool) -> Work | None:
    staging.write(tensor, work.wait())
    return work if async_op else None


def _check_like(target: Any, shape: Sequence[int], source: Tensor, what: str) -> None:
    staging.check_tensor(target, what)
    if tuple(target.shape) != tuple(shape) or target.dtype != source.dtype:
        raise ShapeError(
            f"{what} is {target.dtype}{list(target.shape)}, but {source.dtype}{list(shape)} is needed."
        )
