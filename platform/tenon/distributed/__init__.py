"""Distributed training: torch.distributed's names, over MPI, from a plain ``pip install``.

``mpirun -n 4 python train.py`` needs no address, port or environment variable, and no call to
``init_process_group``: the first use initializes the process group, and without a launcher there is one rank
and MPI is never loaded. Importing this package loads nothing; ``import tenon`` imports it to set thread
counts before NumPy.

Start reading at ``communication/communicator.py`` (collectives on arrays), then ``messages/collectives.py``
(on tensors), ``replicas/data_parallel.py`` and ``processes/failure.py``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenon.distributed.backends import Backend as Backend
    from tenon.distributed.backends import DebugLevel as DebugLevel
    from tenon.distributed.backends import default_pg_timeout as default_pg_timeout
    from tenon.distributed.backends import get_debug_level as get_debug_level
    from tenon.distributed.backends import get_default_backend_for_device as get_default_backend_for_device
    from tenon.distributed.backends import is_backend_available as is_backend_available
    from tenon.distributed.backends import is_gloo_available as is_gloo_available
    from tenon.distributed.backends import is_mpi_available as is_mpi_available
    from tenon.distributed.backends import is_nccl_available as is_nccl_available
    from tenon.distributed.backends import is_torchelastic_launched as is_torchelastic_launched
    from tenon.distributed.backends import is_ucc_available as is_ucc_available
    from tenon.distributed.backends import is_xccl_available as is_xccl_available
    from tenon.distributed.communication.calls import Work as Work
    from tenon.distributed.communication.communicator import Communicator as Communicator
    from tenon.distributed.communication.communicator import ProcessGroup as ProcessGroup
    from tenon.distributed.communication.reduction import ReduceOp as ReduceOp
    from tenon.distributed.communication.reduction import reduce_op as reduce_op
    from tenon.distributed.communication.reduction import supports_complex as supports_complex
    from tenon.distributed.communication.world import get_communicator as get_communicator
    from tenon.distributed.communication.world import use_communicator as use_communicator
    from tenon.distributed.device_mesh import DeviceMesh as DeviceMesh
    from tenon.distributed.device_mesh import init_device_mesh as init_device_mesh
    from tenon.distributed.messages.coalesced import all_gather_coalesced as all_gather_coalesced
    from tenon.distributed.messages.coalesced import all_reduce_coalesced as all_reduce_coalesced
    from tenon.distributed.messages.collectives import all_gather as all_gather
    from tenon.distributed.messages.collectives import all_gather_into_tensor as all_gather_into_tensor
    from tenon.distributed.messages.collectives import all_gather_single as all_gather_single
    from tenon.distributed.messages.collectives import all_reduce as all_reduce
    from tenon.distributed.messages.collectives import barrier as barrier
    from tenon.distributed.messages.collectives import broadcast as broadcast
    from tenon.distributed.messages.collectives import gather as gather
    from tenon.distributed.messages.collectives import monitored_barrier as monitored_barrier
    from tenon.distributed.messages.collectives import reduce as reduce
    from tenon.distributed.messages.collectives import reduce_scatter as reduce_scatter
    from tenon.distributed.messages.collectives import reduce_scatter_single as reduce_scatter_single
    from tenon.distributed.messages.collectives import reduce_scatter_tensor as reduce_scatter_tensor
    from tenon.distributed.messages.collectives import scatter as scatter
    from tenon.distributed.messages.exchange import all_to_all as all_to_all
    from tenon.distributed.messages.exchange import all_to_all_single as all_to_all_single
    from tenon.distributed.messages.identity import named as named
    from tenon.distributed.messages.point_to_point import P2POp as P2POp
    from tenon.distributed.messages.point_to_point import batch_isend_irecv as batch_isend_irecv
    from tenon.distributed.messages.point_to_point import irecv as irecv
    from tenon.distributed.messages.point_to_point import isend as isend
    from tenon.distributed.messages.point_to_point import recv as recv
    from tenon.distributed.messages.point_to_point import send as send
    from tenon.distributed.messages.process_group import GroupMember as GroupMember
    from tenon.distributed.messages.process_group import destroy_process_group as destroy_process_group
    from tenon.distributed.messages.process_group import get_backend as get_backend
    from tenon.distributed.messages.process_group import get_backend_config as get_backend_config
    from tenon.distributed.messages.process_group import get_global_rank as get_global_rank
    from tenon.distributed.messages.process_group import get_group_rank as get_group_rank
    from tenon.distributed.messages.process_group import get_local_rank as get_local_rank
    from tenon.distributed.messages.process_group import get_node_local_rank as get_node_local_rank
    from tenon.distributed.messages.process_group import get_process_group_ranks as get_process_group_ranks
    from tenon.distributed.messages.process_group import get_rank as get_rank
    from tenon.distributed.messages.process_group import get_world_size as get_world_size
    from tenon.distributed.messages.process_group import group as group
    from tenon.distributed.messages.process_group import init_process_group as init_process_group
    from tenon.distributed.messages.process_group import is_available as is_available
    from tenon.distributed.messages.process_group import is_initialized as is_initialized
    from tenon.distributed.messages.process_group import new_group as new_group
    from tenon.distributed.messages.process_group import new_subgroups as new_subgroups
    from tenon.distributed.messages.process_group import (
        new_subgroups_by_enumeration as new_subgroups_by_enumeration,
    )
    from tenon.distributed.replicas.accumulation import GradientAccumulation as GradientAccumulation
    from tenon.distributed.replicas.accumulation import sum_and_count as sum_and_count
    from tenon.distributed.replicas.comm_hooks import GradBucket as GradBucket
    from tenon.distributed.replicas.data_parallel import DistributedDataParallel as DistributedDataParallel
    from tenon.distributed.replicas.gradients import GradientSynchronizer as GradientSynchronizer
    from tenon.distributed.sampler import DistributedSampler as DistributedSampler
    from tenon.distributed.sampler import ShardedSampler as ShardedSampler
    from tenon.distributed.sampler import reduce_sum_count as reduce_sum_count

_MODULES = {
    "replicas.accumulation": ("GradientAccumulation", "sum_and_count"),
    "backends": (
        "Backend",
        "DebugLevel",
        "default_pg_timeout",
        "get_debug_level",
        "get_default_backend_for_device",
        "is_backend_available",
        "is_gloo_available",
        "is_mpi_available",
        "is_nccl_available",
        "is_torchelastic_launched",
        "is_ucc_available",
        "is_xccl_available",
    ),
    "communication.calls": ("Work",),
    "device_mesh": ("DeviceMesh", "init_device_mesh"),
    "messages.coalesced": ("all_gather_coalesced", "all_reduce_coalesced"),
    "messages.collectives": (
        "all_gather",
        "all_gather_into_tensor",
        "all_gather_single",
        "all_reduce",
        "barrier",
        "broadcast",
        "gather",
        "monitored_barrier",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "reduce_scatter_single",
        "scatter",
    ),
    "replicas.comm_hooks": ("GradBucket",),
    "communication.communicator": ("Communicator", "ProcessGroup"),
    "replicas.data_parallel": ("DistributedDataParallel",),
    "messages.exchange": ("all_to_all", "all_to_all_single"),
    "replicas.gradients": ("GradientSynchronizer",),
    "messages.identity": ("named",),
    "object_collectives": (
        "all_gather_object",
        "broadcast_object_list",
        "gather_object",
        "recv_object_list",
        "scatter_object_list",
        "send_object_list",
    ),
    "messages.point_to_point": ("P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"),
    "messages.process_group": (
        "GroupMember",
        "destroy_process_group",
        "get_backend",
        "get_backend_config",
        "get_global_rank",
        "get_group_rank",
        "get_local_rank",
        "get_node_local_rank",
        "get_process_group_ranks",
        "get_rank",
        "get_world_size",
        "group",
        "init_process_group",
        "is_available",
        "is_initialized",
        "new_group",
        "new_subgroups",
        "new_subgroups_by_enumeration",
    ),
    "communication.reduction": ("ReduceOp", "reduce_op", "supports_complex"),
    "sampler": ("DistributedSampler", "ShardedSampler", "reduce_sum_count"),
    "communication.world": ("get_communicator", "use_communicator"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
_PACKAGES = ("algorithms", "distributed_c10d", "nn", "optim")

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:  # a class, function or module
    if name in _PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}. It has {', '.join(__all__)}.")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
