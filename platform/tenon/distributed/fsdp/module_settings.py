"""The settings of a ``fully_shard`` module: when it gathers, releases and reduces, and what it divides by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from tenon.distributed.fsdp.parameter_group import AllReduceHook
from tenon.distributed.fsdp.sharded_steps import refuse
from tenon.distributed.fsdp.state import STATE, ModuleState, states_of
from tenon.errors import ArgumentError, ArgumentTypeError
from tenon.nn.module import Module

if TYPE_CHECKING:
    from tenon.distributed.fsdp.fully_shard import FSDPModule


class ModuleSettings:
    """Mixin of ``FSDPModule``. ``recurse`` includes the ``fully_shard`` modules inside."""

    @property
    def _state(self) -> ModuleState:
        state: ModuleState = self.__dict__[STATE]
        return state

    def _states(self, recurse: bool) -> Iterable[ModuleState]:
        return states_of(cast(Module, self)) if recurse else [self._state]

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Whether backward reduces gradients; if not they accumulate, whole, on each rank."""
        for state in self._states(recurse):
            if not requires_gradient_sync:
                _refuse_deterministic(state, "set_requires_gradient_sync(False)")
            state.group.reduces = state.group.reduces_over_replicas = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Whether backward reduces over the replicas of a two-dimensional mesh; if not, shards
        accumulate."""
        for state in self._states(recurse):
            if not requires_all_reduce:
                _refuse_deterministic(state, "set_requires_all_reduce(False)")
            state.group.reduces_over_replicas = requires_all_reduce

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether to release the parameters after forward."""
        if not isinstance(reshard_after_forward, bool):
            raise ArgumentError(
                f"reshard_after_forward should be a bool, got {type(reshard_after_forward).__name__}. Pass a"
                " number to fully_shard."
            )
        for state in self._states(recurse):
            state.reshard_after_forward = state.group.reshard_after_forward = reshard_after_forward

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Whether to release the parameters after backward; False saves the gather of a further
        micro-batch."""
        for state in self._states(recurse):
            state.group.reshards_after_backward = reshard_after_backward

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Whether the next backward pass is the last of the step, as it is by default."""
        model = self._state.model
        state = self._state if model is None else model.root
        state.is_last_backward = is_last_backward

    def set_modules_to_forward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Start to gather the parameters of ``modules`` when this module begins its forward."""
        self._state.forward_prefetch = [_state_of(m) for m in modules]

    def set_modules_to_backward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Start to gather the parameters of ``modules`` when this module begins its backward."""
        self._state.backward_prefetch = [_state_of(m) for m in modules]

    def set_all_reduce_hook(self, hook: AllReduceHook, *, stream: object = None) -> None:
        """Call ``hook`` with the reduced gradients of the module's shards, a flat tensor, which it may
        change in place. ``stream`` has no effect; with a mesh of two dimensions it has to be None."""
        _refuse_deterministic(self._state, "set_all_reduce_hook")
        if stream is not None and self._state.group.replicas is not None:
            raise ArgumentError("stream cannot be set when using native HSDP")
        self._state.group.all_reduce_hook = hook

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Divide summed gradients by ``factor``, in place of the number of ranks."""
        _refuse_deterministic(self._state, "set_gradient_divide_factor")
        if not factor > 0:
            raise ArgumentError(f"set_gradient_divide_factor: factor={factor!r} has to be positive.")
        self._state.group.divide_factor = float(factor)

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def set_force_sum_reduction_for_comms(self, enable: bool) -> None:
        """Whether collectives only sum, and the division by the number of ranks is a step of its own."""
        self._state.group.sums_only = enable

    def set_reduce_scatter_unused_params(
        self, reduce_scatter_unused_params: bool, *, recurse: bool = True
    ) -> None:
        """Whether every backward pass reduces the gradients of all trained parameters, with zeros for those
        that have none: for models of which a rank may use a module that another rank does not."""
        for state in self._states(recurse):
            state.group.reduces_unused = reduce_scatter_unused_params

    def set_reduce_scatter_max_input_buffers(self, max_input_buffers: int, *, recurse: bool = True) -> None:
        """No effect but for a check: gradients are reduced where backward has put them, without buffers that
        could be more."""
        if isinstance(max_input_buffers, bool) or not isinstance(max_input_buffers, int):
            raise ArgumentTypeError(
                f"max_input_buffers must be an int, got {type(max_input_buffers).__name__}. Pass 1 or more."
            )
        if max_input_buffers < 1:
            raise ArgumentError(f"max_input_buffers must be a positive int, got {max_input_buffers}.")

    def set_separate_reduce_scatter_group(self, enable: bool = True, *, recurse: bool = True) -> None:
        """No effect: MPI has no queue in which a reduction would wait for a gather."""

    def set_allocate_memory_from_process_group_for_comm(self, enable: bool) -> None:
        """No effect: ranks of one host read each other's memory anyway where they can."""

    def set_symm_mem_for_comm(self, backend: str = "NCCL") -> None:
        """No effect, as ``set_allocate_memory_from_process_group_for_comm``."""

    def _set_unshard_async_op(self, async_op: bool) -> None:
        """No effect: gathers are started ahead wherever communication overlaps with computation."""

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Whether to gather the parameters before backward: False for modules whose backward reads no
        parameter, such as an embedding's."""
        self._state.group.unshards_in_backward = unshard_in_backward

    def set_post_optim_event(self, event: object) -> None:
        """No effect: computation on the CPU has no streams."""


def _state_of(module: object) -> ModuleState:
    if not isinstance(module, ModuleSettings):
        raise ArgumentError(f"prefetch: {type(module).__name__} is not a fully_shard module.")
    return module._state


def _refuse_deterministic(state: ModuleState, setting: str) -> None:
    if state.group.sums is not None:
        refuse(setting)
