"""Options of ``FullyShardedDataParallel``, as PyTorch has them (``torch.distributed.fsdp.api``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from tenon.distributed.fsdp.policies import MixedPrecisionPolicy
from tenon.dtypes import dtype
from tenon.nn.layers.norm import _BatchNorm
from tenon.nn.module import Module

__all__ = [
    "BackwardPrefetch",
    "CPUOffload",
    "FullOptimStateDictConfig",
    "FullStateDictConfig",
    "MixedPrecision",
    "OptimStateDictConfig",
    "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig",
    "ShardingStrategy",
    "StateDictConfig",
    "StateDictSettings",
    "StateDictType",
]


class ShardingStrategy(Enum):
    """What is sharded, and over which ranks.

    ``FULL_SHARD``: parameters, gradients and optimizer state (ZeRO-3). ``SHARD_GRAD_OP``: the same, but
    parameters stay gathered from forward to backward (ZeRO-2). ``NO_SHARD``: nothing, as in
    ``DistributedDataParallel``. ``HYBRID_SHARD`` and ``_HYBRID_SHARD_ZERO2``: the first two within a node,
    replicated over the nodes.
    """

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()
    _HYBRID_SHARD_ZERO2 = auto()

    @property
    def releases(self) -> bool:
        """Whether parameters are released between forward and backward."""
        return self in (ShardingStrategy.FULL_SHARD, ShardingStrategy.HYBRID_SHARD)

    @property
    def is_hybrid(self) -> bool:
        """Whether shards are replicated over nodes."""
        return self in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)


class BackwardPrefetch(Enum):
    """When the parameters of the next module are gathered in backward: where gathers overlap with
    computation, one module ahead, whichever is given."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


@dataclass
class MixedPrecision:
    """The dtypes of computation, of reductions and of buffers; see ``MixedPrecisionPolicy``.

    ``cast_root_forward_inputs`` casts the inputs of the outermost module, ``cast_forward_inputs`` those of
    every one. ``keep_low_precision_grads`` has no effect: gradients have the dtype of the parameters, which
    they are accumulated in. Modules of ``_module_classes_to_ignore`` compute in full precision.
    """

    param_dtype: dtype | None = None
    reduce_dtype: dtype | None = None
    buffer_dtype: dtype | None = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: Sequence[type[Module]] = (_BatchNorm,)

    def policy(self, root: bool) -> MixedPrecisionPolicy:
        """The same as a policy of ``fully_shard``."""
        casts = self.cast_root_forward_inputs if root else self.cast_forward_inputs
        return MixedPrecisionPolicy(self.param_dtype, self.reduce_dtype, cast_forward_inputs=casts)


@dataclass
class CPUOffload:
    """``offload_params``: shards and gradients are on the CPU, wherever the model computes."""

    offload_params: bool = False


class StateDictType(Enum):
    """What ``state_dict`` returns: whole tensors, or ``DTensor``s. ``LOCAL_STATE_DICT`` is not supported."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


@dataclass
class StateDictConfig:
    """``offload_to_cpu`` copies tensors to the CPU."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """``rank0_only``: other ranks get an empty state dict."""

    rank0_only: bool = False


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """``_use_dtensor`` has no effect: shards are ``DTensor``s."""

    _use_dtensor: bool = False


@dataclass
class OptimStateDictConfig:
    """``offload_to_cpu`` copies tensors to the CPU."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """``rank0_only``: other ranks get an empty state dict."""

    rank0_only: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """``_use_dtensor`` has no effect: shards are ``DTensor``s."""

    _use_dtensor: bool = False


@dataclass
class StateDictSettings:
    """What ``get_state_dict_type`` returns."""

    state_dict_type: StateDictType
    state_dict_config: StateDictConfig
    optim_state_dict_config: OptimStateDictConfig
