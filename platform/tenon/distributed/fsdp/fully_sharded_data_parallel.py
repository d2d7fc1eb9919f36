"""``FullyShardedDataParallel``: PyTorch's older interface of sharded training, a face on ``fully_shard``.

It wraps the model, and shards the inner modules that a policy selects in place. Unlike PyTorch's there are no
flat parameters: parameters are ``DTensor``s with their own names and shapes, as with ``use_orig_params``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tenon.distributed.communication import world
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.device_mesh import DeviceMesh, init_device_mesh
from tenon.distributed.fsdp import options as fsdp_options
from tenon.distributed.fsdp.fully_shard import FSDPModule, fully_shard
from tenon.distributed.fsdp.options import (
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    MixedPrecision,
    ShardingStrategy,
    StateDictSettings,
    StateDictType,
)
from tenon.distributed.fsdp.policies import CPUOffloadPolicy, MixedPrecisionPolicy
from tenon.distributed.fsdp.sharded_steps import refuse
from tenon.distributed.fsdp.state import states_of
from tenon.distributed.fsdp.state_dicts import WRAPPED, WithStateDicts, with_wrapped
from tenon.distributed.fsdp.whole_parameters import gathered
from tenon.distributed.fsdp.wrap import selected
from tenon.distributed.replicas.broadcast import broadcast_tensors
from tenon.distributed.replicas.shard_steps import SHARDS
from tenon.engine.types import Nested
from tenon.errors import ArgumentError, UnsupportedError
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.nn.utils.clip_grad import clip_grad_norm_
from tenon.tensors.tensor import Tensor

__all__ = ["FullyShardedDataParallel"]


class FullyShardedDataParallel(WithStateDicts):
    """Train ``module`` with parameters, gradients and optimizer state sharded over the ranks.

    ``auto_wrap_policy`` selects inner modules that are gathered by themselves: without it, the whole model is
    gathered at once. ``sharding_strategy`` is ``FULL_SHARD`` by default. ``sync_module_states`` broadcasts
    rank 0's parameters and buffers first. ``param_init_fn(module)`` gives the parameters of a module on the
    meta device memory and values; it is called for one such module after the other, so that no rank has the
    whole model. ``ignored_modules`` and ``ignored_states`` stay as they are. Create the optimizer afterwards.
    The ranks are those of ``process_group`` or of ``device_mesh``, by default all.

    ``state_dict()`` has whole tensors, under the names of the unwrapped model; see ``state_dict_type``.
    ``backward_prefetch``, ``forward_prefetch``, ``limit_all_gathers``, ``use_orig_params`` and ``device_id``
    have no effect: inputs must be on the model's device. ``deterministic="world"``, ``shards`` and
    ``threads`` are those of ``fully_shard``. For new code, use ``fully_shard``.

    Source: torch.distributed.fsdp.FullyShardedDataParallel.
    """

    def __init__(
        self,
        module: Module,
        process_group: Communicator | tuple[Communicator, Communicator] | None = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | None = None,
        auto_wrap_policy: object = None,
        backward_prefetch: fsdp_options.BackwardPrefetch | None = fsdp_options.BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Module] | None = None,
        param_init_fn: Callable[[Module], object] | None = None,
        device_id: object = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = False,
        ignored_states: Iterable[Parameter] | Iterable[Module] | None = None,
        device_mesh: DeviceMesh | None = None,
        *,
        deterministic: str | None = None,
        shards: int = SHARDS,
        threads: int = 1,
    ) -> None:
        super().__init__()
        strategy = ShardingStrategy.FULL_SHARD if sharding_strategy is None else sharding_strategy
        if not isinstance(strategy, ShardingStrategy):
            raise ArgumentError(f"sharding_strategy={strategy!r} has to be a ShardingStrategy.")
        if process_group is not None:
            if device_mesh is not None or strategy.is_hybrid or not isinstance(process_group, Communicator):
                raise UnsupportedError(
                    f"FullyShardedDataParallel: process_group with {strategy} is not supported, or beside"
                    " device_mesh. Pass device_mesh, of one dimension, or of two to replicate over the first."
                )
            device_mesh = DeviceMesh.from_group(process_group, _kind(module))
        modules, parameters = _ignored(ignored_modules, ignored_states)
        mesh = _mesh_for(strategy, device_mesh, module)
        precision = MixedPrecision() if mixed_precision is None else mixed_precision
        offload = CPUOffloadPolicy() if cpu_offload is not None and cpu_offload.offload_params else None
        kept = parameters | {p for m in modules for p in m.parameters()}
        inner = selected(module, auto_wrap_policy, {id(m) for m in modules})
        if sync_module_states:
            _broadcast(module, kept, mesh)
        for each, chosen in [*inner, (module, {})]:
            if isinstance(each, FSDPModule):
                if each is module and deterministic is not None:
                    raise ArgumentError(
                        "FullyShardedDataParallel: the model has been sharded before. Pass"
                        f" deterministic={deterministic!r} to that call."
                    )
                continue
            _initialize(each, param_init_fn)
            releases = chosen.get("sharding_strategy", strategy).releases
            policy: MixedPrecisionPolicy = (chosen.get("mixed_precision") or precision).policy(each is module)
            if isinstance(each, tuple(precision._module_classes_to_ignore)):
                policy = MixedPrecisionPolicy()
            fully_shard(
                each,
                mesh=mesh,
                reshard_after_forward=releases,
                mp_policy=policy,
                offload_policy=offload,
                ignored_params=kept,
                deterministic=deterministic if each is module else None,
                shards=shards,
                threads=threads,
            )
        if precision.buffer_dtype is not None:
            _cast_buffers(module, precision)
        self._fsdp_wrapped_module = module
        self._register_load_state_dict_pre_hook(with_wrapped)
        self.sharding_strategy, self.mesh = strategy, mesh
        self._settings = StateDictSettings(
            StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig()
        )

    def __getattr__(self, name: str) -> Any:  # that of the model
        """Attributes of the model."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if WRAPPED not in self.__dict__.get("_modules", ()):
                raise
            return getattr(self.module, name)

    def __getitem__(self, key: object) -> Any:  # that of a container
        """Items of a model that is a container."""
        return self.module[key]  # type: ignore[index]

    def forward(self, *args: Nested, **kwargs: Nested) -> Nested:
        """The model's output."""
        return self.module(*args, **kwargs)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """The parameters under the names of the unwrapped model."""
        return self.module.named_parameters(prefix, recurse, remove_duplicate)

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The buffers under the names of the unwrapped model."""
        return self.module.named_buffers(prefix, recurse, remove_duplicate)

    def check_is_root(self) -> bool:
        """Whether this is the outermost sharded module; True before the first forward, which decides it."""
        state = next(iter(states_of(self.module)))
        return state.model is None or state.model.root is state

    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[Module]:
        """The sharded modules in ``module``; with ``root_only`` those that are in no other."""
        found = [m for m in module.modules() if isinstance(m, FSDPModule)]
        if root_only:
            inner = {id(d) for m in found for d in m.modules() if d is not m}
            found = [m for m in found if id(m) not in inner]
        return list(found)

    # --- training ---

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate whole gradients on each rank; the first backward outside reduces them."""
        states = list(states_of(self))
        if any(state.group.sums is not None for state in states):
            refuse("no_sync()")
        before = [(s.group.reduces, s.group.reduces_over_replicas) for s in states]
        for state in states:
            state.group.reduces = state.group.reduces_over_replicas = False
        try:
            yield
        finally:
            for state, (reduces, over_replicas) in zip(states, before, strict=True):
                state.group.reduces, state.group.reduces_over_replicas = reduces, over_replicas

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Clip the gradients by the norm of all of the model's; returns that norm."""
        norm = clip_grad_norm_(self.parameters(), max_norm, norm_type)
        whole: Tensor = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        return whole

    def register_comm_hook(self, state: object, hook: object) -> None:
        """Raise: use ``fully_shard`` and ``set_all_reduce_hook``. ``state`` and ``hook`` have no effect."""
        raise UnsupportedError(
            "FullyShardedDataParallel: communication hooks are not supported. mixed_precision has"
            " reduce_dtype for smaller messages."
        )

    def apply(self, fn: Callable[[Module], object]) -> FullyShardedDataParallel:
        """Call ``fn`` on every module with whole parameters, whose changes are kept; collective."""
        with self.summon_full_params(self):
            super().apply(fn)
        return self

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(
        module: Module,
        recurse: bool = True,
        writeback: bool = True,
        rank0_only: bool = False,
        offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> Iterator[None]:
        """Inside, ``module`` has its whole parameters on every rank; collective.

        ``writeback`` keeps changes of them, ``with_grads`` makes gradients whole too. ``rank0_only`` and
        ``offload_to_cpu`` have no effect but that the first cannot be combined with the others.
        """
        if rank0_only and (writeback or with_grads):
            raise UnsupportedError(
                "summon_full_params: rank0_only=True is not supported with writeback=True or with_grads=True,"
                " by which ranks would get different parameters. Pass writeback=False."
            )
        wrapped = module.module if isinstance(module, FullyShardedDataParallel) else module
        with gathered(wrapped, recurse, writeback, with_grads):
            yield


def _ignored(
    modules: Iterable[Module] | None, states: Iterable[Parameter] | Iterable[Module] | None
) -> tuple[set[Module], set[Parameter]]:
    """Ignored modules and parameters."""
    found, parameters = set(modules or ()), set()
    for state in states or ():
        if isinstance(state, Module):
            found.add(state)
        elif isinstance(state, Parameter):
            parameters.add(state)
        else:
            raise ArgumentError(
                f"ignored_states should be parameters or modules, but has a {type(state).__name__}."
            )
    return found, parameters


def _mesh_for(strategy: ShardingStrategy, mesh: DeviceMesh | None, module: Module) -> DeviceMesh:
    """The mesh of a strategy: one dimension, or replicas and shards."""
    if mesh is not None:
        if strategy.is_hybrid and mesh.ndim != 2:
            raise ArgumentError(
                f"{strategy} needs a device_mesh of two dimensions, replicas and shards, not {mesh!r}."
            )
        return mesh
    communicator = world.get_communicator()
    size, kind = communicator.size, _kind(module)
    if strategy is ShardingStrategy.NO_SHARD:
        return init_device_mesh(kind, (size, 1))
    if strategy.is_hybrid:
        within = communicator.local_size if size % communicator.local_size == 0 else size
        return init_device_mesh(kind, (size // within, within))
    return init_device_mesh(kind, (size,))


def _kind(module: Module) -> str:
    """The type of device that the module is for."""
    parameter = next(iter(module.parameters()), None)
    return "cpu" if parameter is None or parameter.device.type == "meta" else parameter.device.type


def _broadcast(module: Module, ignored: set[Parameter], mesh: DeviceMesh) -> None:
    """Make parameters and buffers of all ranks of ``mesh`` those of its first rank."""
    left_out = {id(p) for p in ignored}
    tensors = [t for t in (*module.parameters(), *module.buffers()) if id(t) not in left_out]
    if any(t.device.type == "meta" for t in tensors):
        raise ArgumentError(
            "sync_module_states=True needs parameters with values, but some are on the meta device. Load a"
            " state_dict instead, or leave it out."
        )
    for group in mesh.get_all_groups():
        broadcast_tensors(tensors, group, name=f"state of {type(module).__name__}")


def _initialize(module: Module, param_init_fn: Callable[[Module], object] | None) -> None:
    """Call ``param_init_fn`` for the modules whose own parameters are on the meta device."""
    if param_init_fn is None:
        return
    for each in module.modules():
        own = [*each.parameters(recurse=False), *each.buffers(recurse=False)]
        if any(t.device.type == "meta" for t in own):
            param_init_fn(each)


def _cast_buffers(module: Module, precision: MixedPrecision) -> None:
    for each in module.modules():
        if not isinstance(each, tuple(precision._module_classes_to_ignore)):
            for name, buffer in each._buffers.items():
                if buffer is not None and buffer.is_floating_point():
                    each._buffers[name] = buffer.to(precision.buffer_dtype)
