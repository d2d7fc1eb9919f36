"""``fully_shard``: data parallel training in which no rank stores the whole model.

Each rank stores its shard of parameters, gradients and optimizer state. A module's parameters are gathered
for its forward and backward and released in between; its gradients are averaged over the ranks, each of
which keeps its shard. The interface is PyTorch's, ``torch.distributed.fsdp``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from tenon.distributed.device_mesh import DeviceMesh
from tenon.distributed.fsdp.arguments import (
    PlacementFunction,
    check_module,
    check_reshard,
    checked_mesh,
    owners_of,
    placement_of,
)
from tenon.distributed.fsdp.buffers import BufferPool
from tenon.distributed.fsdp.module_settings import ModuleSettings
from tenon.distributed.fsdp.parameter_group import ParameterGroup
from tenon.distributed.fsdp.policies import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from tenon.distributed.fsdp.sharded_parameter import ShardedParameter
from tenon.distributed.fsdp.sharded_steps import DeterministicSteps, ShardedSteps
from tenon.distributed.fsdp.state import STATE, ModuleState, states_of
from tenon.distributed.replicas.buckets import agree
from tenon.distributed.replicas.shard_steps import SHARDS
from tenon.engine.types import Nested
from tenon.errors import ArgumentError, ModuleError, UnsupportedError
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

__all__ = ["FSDPModule", "UnshardHandle", "fully_shard", "register_fsdp_forward_method", "share_comm_ctx"]

M = TypeVar("M", Module, list[Module])


def fully_shard(
    module: M,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: PlacementFunction | None = None,
    mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: OffloadPolicy | None = None,
    ignored_params: Iterable[Parameter] | None = None,
    deterministic: str | None = None,
    shards: int = SHARDS,
    threads: int = 1,
) -> M:
    """Shard the parameters of ``module`` over the ranks of ``mesh``, in place; return it.

    Call it on the blocks of a model, then on the model: each call takes the parameters that no earlier one
    has, and gathers these together. Parameters become ``DTensor``s, split along their first axis, or the one
    that ``shard_placement_fn`` returns; create the optimizer afterwards. Every rank passes the same module;
    values are each rank's own, without communication: seed all ranks alike.

    A ``mesh`` of two dimensions replicates over the first and shards over the second; by default it has one,
    of all ranks. ``reshard_after_forward`` releases the parameters after forward (ZeRO-3), the default but
    for the outermost module in training; False keeps them until backward (ZeRO-2: more memory, one gather
    less); a number keeps them in groups of that many ranks. ``mp_policy`` computes in other dtypes,
    ``offload_policy`` stores shards on the CPU; ``ignored_params`` stay as they are.

    ``deterministic="world"``, in the call on the whole model, makes weights independent of the number of
    ranks, and equal to those of ``DistributedDataParallel`` with this option, bit for bit: a batch is split
    into ``shards``, computed with ``threads`` threads. Train with ``model.shards``, ``model.backward`` and
    ``model.finish``; the guide is ``docs/guide/deterministic.md``.

    Raises ``ArgumentError`` for parameters without axes, parameters that are sharded already, and modules
    without ``forward``; ``CollectiveMismatchError`` if ranks pass different modules.

    Source: torch.distributed.fsdp.fully_shard; ZeRO (Rajbhandari et al. 2020).

    >>> import tenon
    >>> from tenon import nn
    >>> from tenon.distributed.fsdp import fully_shard
    >>> model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    >>> for layer in (model[0], model[2]):
    ...     layer = fully_shard(layer)
    >>> model = fully_shard(model)
    >>> optimizer = tenon.optim.AdamW(model.parameters())
    >>> model(tenon.ones(2, 4)).sum().backward()
    >>> optimizer.step()
    """
    modules: list[Module] = [module] if isinstance(module, Module) else list(module)
    for one in modules:
        check_module(one)
    device_mesh = checked_mesh(mesh, modules)
    check_reshard(reshard_after_forward, device_mesh)
    _check_deterministic(deterministic, modules)
    ignored = {id(p) for p in ignored_params or ()}
    precision = MixedPrecisionPolicy() if mp_policy is None else mp_policy
    owners = owners_of(modules, ignored)
    named = [(name, parameter) for name, parameter, _ in owners]
    offloads = isinstance(offload_policy, CPUOffloadPolicy)
    communicator = device_mesh.get_group(device_mesh.ndim - 1)
    options = [f"fully_shard of {', '.join(type(m).__name__ for m in modules)}"]
    agree(communicator, named, options)
    parameters = [
        ShardedParameter(p, places, name, device_mesh, placement_of(shard_placement_fn, p, name), offloads)
        for name, p, places in owners
    ]
    pool = communicator.kept.setdefault("fully_shard", BufferPool())
    reshard = True if reshard_after_forward is None else reshard_after_forward
    group = ParameterGroup(parameters, device_mesh, precision, pool, reshard)
    state = ModuleState(modules, group, precision, reshard_after_forward)
    inner: list[ModuleState] = [s for m in modules for s in states_of(m)]
    if deterministic is not None:
        state.steps = ShardedSteps(modules[0], [state, *inner], shards, threads)
        for each in inner:
            each.steps = None
    for one in modules:
        one.__dict__[STATE] = state
        original: Any = type(one)  # mypy takes classes with ``__eq__`` for unhashable
        one.__class__ = _sharded_class(original, deterministic is not None)
        one.register_state_dict_pre_hook(_show_shards)
        one.register_load_state_dict_pre_hook(_show_shards)
    return module


def _check_deterministic(deterministic: str | None, modules: list[Module]) -> None:
    """Raise ``ArgumentError`` for values of the option, and places of it, that are not supported."""
    if deterministic not in (None, "world"):
        raise ArgumentError(f'deterministic={deterministic!r} must be None or "world".')
    if deterministic is not None and len(modules) > 1:
        raise ArgumentError(
            f'deterministic="world" is for the whole model, not for a list of {len(modules)} modules. Pass'
            " it in the fully_shard call on the outermost module."
        )
    for module in modules:
        for name, each in module.named_modules():
            inner = each.__dict__.get(STATE)
            if deterministic is None and inner is not None and inner.steps is not None:
                raise ArgumentError(
                    f'fully_shard: module {name!r} has deterministic="world", and this call on the'
                    f" {type(module).__name__} around it has not. Pass the option here, not for inner"
                    " modules."
                )


def _show_shards(module: Module, *args: object) -> None:
    for state in states_of(module):
        state.group.reshard()


class _CopyError(UnsupportedError, AssertionError):
    """Also an AssertionError, which PyTorch raises here."""


class UnshardHandle:
    """The handle of ``unshard(async_op=True)``."""

    def __init__(self, group: ParameterGroup | None) -> None:
        self._group = group

    def wait(self) -> None:
        """Wait for the gather, and give the whole parameters to the module."""
        group, self._group = self._group, None
        if group is not None:
            group.unshard()


class FSDPModule(ModuleSettings, Module):
    """The base class that ``fully_shard`` adds to a module's class; its settings are ``ModuleSettings``."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:  # those of the original class
        """An instance of the original class: code such as ``Sequential[1:3]`` makes new modules by
        ``type(self)``."""
        after = list(cls.__mro__).index(ModuleSettings) + 1
        original: Any = cls.__mro__[after]  # a class of any arguments
        self = original.__new__(original, *args, **kwargs)
        self.__init__(*args, **kwargs)
        return self

    def __call__(self, *args: Nested, **kwargs: Nested) -> Nested:
        """Gather the parameters, call the module, and release them."""
        return self._state.call(self, super().__call__, args, kwargs)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Convert the shards, as ``to`` and ``to_empty`` do."""
        _show_shards(self)
        result = super()._apply(fn, recurse)
        for state in states_of(self):
            for parameter in state.group.parameters:
                parameter.adopt()
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of the shards, also while the parameters are gathered, and those that wait for
        their reduction."""
        super().zero_grad(set_to_none)
        for state in states_of(self):
            state.group.zero_gradients(set_to_none)

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise _CopyError(
            f"FSDP does not support deepcopy: {type(self).__name__} is a fully_shard module. Build the module"
            " again, apply fully_shard, and load the state_dict."
        )

    # --- gathering by hand ---

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gather this module's parameters, not those of ``fully_shard`` modules inside; collective.

        With ``async_op``, returns a handle whose ``wait`` completes it.
        """
        self._state.group.start_unshard()
        if async_op:
            return UnshardHandle(self._state.group)
        self._state.group.unshard()
        return None

    def reshard(self) -> None:
        """Release this module's gathered parameters."""
        self._state.group.reshard()

    def reset_iter_state(self) -> None:
        """Return to the state between steps after an error in forward or backward, on the root: parameters
        are released; gradients that were not reduced are lost. The next forward of the root does it too."""
        model = self._state.model
        if model is None:
            return
        if model.root is not self._state:
            raise ModuleError(
                f"reset_iter_state must be called on the root FSDP module, not on {self._state.group.name!r}."
            )
        model.reset()


@functools.cache
def _sharded_class(cls: type[Module], deterministic: bool) -> type[Module]:
    """The class ``FSDP<name>``, which adds ``FSDPModule`` to ``cls``, and methods of ``deterministic``
    steps."""
    bases: tuple[type, ...] = (FSDPModule, cls)
    if deterministic:
        bases = (DeterministicSteps, *bases)
    return type(f"FSDP{cls.__name__}", bases, {"__module__": cls.__module__})


def share_comm_ctx(modules: list[FSDPModule]) -> None:
    """No effect but for a check of ``modules``: those of the same ranks share communicators and buffers.

    Source: torch.distributed.fsdp.share_comm_ctx.
    """
    for module in modules:
        if not isinstance(module, FSDPModule):
            raise ArgumentError(f"share_comm_ctx: {type(module).__name__} is not a fully_shard module.")


def _state(module: Module) -> ModuleState | None:
    """``fully_shard.state(module)``: what is particular to a ``fully_shard`` module; None for others."""
    return module.__dict__.get(STATE)


fully_shard.state = _state  # type: ignore[attr-defined]


def register_fsdp_forward_method(module: Module, method_name: str) -> None:
    """Gather parameters around ``module.method_name(...)`` too, as around ``forward``; nothing for modules
    without ``fully_shard``.

    Source: torch.distributed.fsdp.register_fsdp_forward_method.
    """
    if not isinstance(module, FSDPModule):
        return
    if not hasattr(module, method_name):
        raise ArgumentError(f"{type(module).__name__} does not have a method {method_name!r}.")
    original = getattr(module, method_name)

    @functools.wraps(original)
    def method(*args: Nested, **kwargs: Nested) -> Nested:
        return module._state.call(module, original, args, kwargs)

    module.__dict__[method_name] = method
