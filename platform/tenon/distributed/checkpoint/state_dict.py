"""State dicts that do not depend on how a model is distributed, and loading them. Names are PyTorch's.

Whatever wraps or shards the model, the keys are the names that its parameters have without that, also those
of the state of optimizers. So a checkpoint of a model on 8 ranks loads into the same model on 2, or on one.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tenon.distributed.checkpoint import optimizer_dicts as dicts
from tenon.distributed.checkpoint.model_names import canonical, model_state, prefix_of, sharded_state_dicts
from tenon.distributed.checkpoint.optimizer_states import initialize
from tenon.distributed.checkpoint.sending import broadcast_state
from tenon.distributed.communication import world
from tenon.distributed.fsdp.whole_parameters import on_cpu, sharded_like, whole_tensors
from tenon.errors import ArgumentError, StateDictError
from tenon.nn.module import Module
from tenon.nn.state import IncompatibleKeys
from tenon.optim.optimizer import Optimizer
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.tensor import Tensor

__all__ = [
    "StateDictOptions",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "get_state_dict",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "set_state_dict",
]

#: Values by name: tensors, numbers, and dicts of them.
Values: TypeAlias = dict[str, Any]
#: Values by name, or state dicts of submodules.
ModelValues: TypeAlias = Mapping[str, object] | Mapping[Module, Mapping[str, object]]
#: One optimizer, or several of one model.
Optimizers: TypeAlias = Optimizer | Iterable[Optimizer]


@dataclass
class StateDictOptions:
    """How state dicts are made and loaded.

    ``full_state_dict``: whole tensors in place of DTensors. ``cpu_offload``: tensors on the CPU; whole ones
    on rank 0 only. ``ignore_frozen_params``: without parameters that do not require grad. ``strict``: keys
    have to match. ``broadcast_from_rank0``: rank 0 passes whole tensors, of which each rank gets its part;
    needs ``full_state_dict``. ``flatten_optimizer_state_dict``: ``state.<name>.<key>`` in place of nested
    dicts. ``keep_submodule_prefixes=False`` leaves the names of ``submodules`` out of keys.
    ``dsd_fqn_modifiers`` has no effect: keys that hooks of modules change need no list of them.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"

    def __post_init__(self) -> None:
        if self.broadcast_from_rank0 and not self.full_state_dict:
            raise ArgumentError("full_state_dict must be True when broadcast_from_rank0 is True.")


def get_model_state_dict(
    model: Module, *, submodules: Collection[Module] | None = None, options: StateDictOptions | None = None
) -> Values:
    """The state dict of ``model`` under the names that parameters have in the model that is not distributed.

    Parameters of sharded models are DTensors; collective with ``full_state_dict``. ``submodules``, which is
    deprecated, selects values.

    >>> from tenon import nn
    >>> from tenon.nn.parallel import DistributedDataParallel
    >>> list(get_model_state_dict(DistributedDataParallel(nn.Linear(2, 1))))
    ['weight', 'bias']
    """
    options = options or StateDictOptions()
    with _unpatched(model):
        state = {name: value for name, (_, value) in model_state(model).items()}
    if submodules:
        _warn_of_submodules()
        state = _selected(model, state, submodules, options.keep_submodule_prefixes)
    if options.ignore_frozen_params:
        named = model.named_parameters(remove_duplicate=False)
        left_out = {canonical(model, name) for name, parameter in named if not parameter.requires_grad}
        state = {name: value for name, value in state.items() if name not in left_out}
    return _given_out(state, options)


def get_optimizer_state_dict(
    model: Module,
    optimizers: Optimizers,
    *,
    submodules: Collection[Module] | None = None,
    options: StateDictOptions | None = None,
) -> Values:
    """The state of ``optimizers`` under names of parameters: ``{"state": ..., "param_groups": ...}``.

    An optimizer that has not made a step gets a state first. Collective with ``full_state_dict``.
    ``submodules``, deprecated, has no effect.
    """
    options = options or StateDictOptions()
    if submodules:
        _warn_of_submodules()
    merged: Values = {"state": {}, "param_groups": []}
    for optimizer in _several(optimizers):
        initialize(optimizer)
        with _unpatched(optimizer):
            found = dicts.named(model, optimizer, whole=options.full_state_dict)
        merged["state"] |= found["state"]
        merged["param_groups"] += found["param_groups"]
    merged["state"] = {name: _given_out(entry, options) for name, entry in merged["state"].items()}
    if options.full_state_dict and options.cpu_offload and world.get_communicator().rank:
        return {}
    return dicts.flattened(merged) if options.flatten_optimizer_state_dict else merged


def get_state_dict(
    model: Module,
    optimizers: Optimizers,
    *,
    submodules: Collection[Module] | None = None,
    options: StateDictOptions | None = None,
) -> tuple[Values, Values]:
    """``get_model_state_dict`` and ``get_optimizer_state_dict``."""
    several = _several(optimizers)
    state = get_model_state_dict(model, submodules=submodules, options=options)
    return state, get_optimizer_state_dict(model, several, options=options) if several else {}


def set_model_state_dict(
    model: Module, model_state_dict: ModelValues, *, options: StateDictOptions | None = None
) -> IncompatibleKeys:
    """Load a state dict of the model that is not distributed, or what ``get_model_state_dict`` returned.

    Of whole tensors each rank takes its part, without communication unless ``broadcast_from_rank0``.
    Submodules with state dicts of their own, in place of names, are deprecated.
    """
    options = options or StateDictOptions()
    with _unpatched(model):
        own = model_state(model)
    given = _by_names(model, model_state_dict)
    if options.broadcast_from_rank0:
        given = broadcast_state(given, {name: value for name, (_, value) in own.items()})
    shares = sharded_like(given, {name: value for name, (_, value) in own.items()})
    renamed = {own[name][0] if name in own else name: value for name, value in shares.items()}
    if options.ignore_frozen_params:
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                renamed.setdefault(name, parameter)
    meta = any(isinstance(v, Tensor) and v.device.type == "meta" for _, v in own.values())
    with _unpatched(model), sharded_state_dicts(model):
        keys = model.load_state_dict(renamed, strict=options.strict, assign=meta)
    return IncompatibleKeys([canonical(model, key) for key in keys.missing_keys], keys.unexpected_keys)


def set_optimizer_state_dict(
    model: Module,
    optimizers: Optimizers,
    optim_state_dict: Values,
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Load what ``get_optimizer_state_dict`` returned, on any number of ranks.

    StateDictError, before anything changes, if the state of a parameter is missing and ``strict`` is true.
    """
    options = options or StateDictOptions()
    given: Values = dict(optim_state_dict)
    if options.broadcast_from_rank0:
        given = broadcast_state(given, {})
    several = _several(optimizers)
    if not given:
        raise StateDictError(
            "the state dict of the optimizer is empty. Pass what get_optimizer_state_dict gave."
        )
    if "state" not in given:
        given = dicts.unflattened(given, [name for each in several for name in dicts.names(model, each)])
    with no_grad(), _unpatched(*several):
        parts = [dicts.numbered(model, each, given, options.strict) for each in several]
        for optimizer, part in zip(several, parts, strict=True):
            optimizer.load_state_dict(part)


def set_state_dict(
    model: Module,
    optimizers: Optimizers,
    *,
    model_state_dict: ModelValues,
    optim_state_dict: Values,
    options: StateDictOptions | None = None,
) -> IncompatibleKeys:
    """``set_optimizer_state_dict`` and ``set_model_state_dict``, the latter unless ``model_state_dict`` is
    empty; with ``broadcast_from_rank0`` it may be, except on rank 0."""
    several = _several(optimizers)
    if several:
        set_optimizer_state_dict(model, several, optim_state_dict, options=options)
    if not model_state_dict and not (options and options.broadcast_from_rank0):
        return IncompatibleKeys([], [])
    return set_model_state_dict(model, model_state_dict, options=options)


def _several(optimizers: Optimizers) -> list[Optimizer]:
    several = [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)
    for each in several:
        if not isinstance(each, Optimizer):
            raise ArgumentError(f"a {type(each).__name__} is not an optimizer. Pass one, or a list of them.")
    return several


def _warn_of_submodules() -> None:
    warnings.warn(
        "Getting submodules only model/optim state_dict is deprecated. Select keys of what get_state_dict"
        " returns.",
        FutureWarning,
        stacklevel=3,
    )


def _selected(model: Module, state: Values, submodules: Collection[Module], keeps_prefixes: bool) -> Values:
    """The values of ``submodules``; without ``keeps_prefixes`` under names in these."""
    prefixes = [prefix_of(model, each) for each in submodules]
    return {
        name if keeps_prefixes else name.removeprefix(prefix): value
        for name, value in state.items()
        for prefix in prefixes
        if name.startswith(prefix)
    }


def _by_names(model: Module, values: ModelValues) -> Values:
    """A copy of ``values`` that has names in ``model`` in place of submodules."""
    if not any(isinstance(key, Module) for key in values):
        return {str(key): value for key, value in values.items()}
    warnings.warn(
        "Passing model_state_dict as a dict of submodules is deprecated. Add their names to the keys.",
        FutureWarning,
        stacklevel=3,
    )
    return {
        prefix_of(model, module) + name: value
        for module, state in values.items()
        if isinstance(module, Module) and isinstance(state, Mapping)
        for name, value in state.items()
    }


def _given_out(values: Mapping[str, object], options: StateDictOptions) -> Values:
    """``values`` as ``options`` ask for them."""
    if options.full_state_dict:
        keeps = not options.cpu_offload or world.get_communicator().rank == 0
        return on_cpu(whole_tensors(values, keeps), options.cpu_offload)
    return on_cpu(values, options.cpu_offload)


def patch_model_state_dict(model: Module, *, options: StateDictOptions | None = None) -> None:
    """Let ``model.state_dict()`` and ``load_state_dict`` be ``get_model_state_dict`` and
    ``set_model_state_dict``, so that ``save`` and ``load`` use these names for the model itself."""

    def state_dict() -> Values:
        return get_model_state_dict(model, options=options)

    def load_state_dict(state_dict: Mapping[str, object]) -> IncompatibleKeys:
        return set_model_state_dict(model, state_dict, options=options)

    _patch([model], state_dict, load_state_dict)


def patch_optimizer_state_dict(
    model: Module, *, optimizers: Optimizers, options: StateDictOptions | None = None
) -> None:
    """Let ``state_dict()`` and ``load_state_dict`` of each of ``optimizers`` be ``get_optimizer_state_dict``
    and ``set_optimizer_state_dict`` of all of them."""
    several = _several(optimizers)

    def state_dict() -> Values:
        return get_optimizer_state_dict(model, several, options=options)

    def load_state_dict(state_dict: Values) -> None:
        set_optimizer_state_dict(model, several, state_dict, options=options)

    _patch(several, state_dict, load_state_dict)


#: The functions that take the place of methods of models and optimizers.
_patches: weakref.WeakSet[Callable[..., object]] = weakref.WeakSet()


def _patch(
    objects: Iterable[object], state_dict: Callable[[], Values], load_state_dict: Callable[..., object]
) -> None:
    _patches.update((state_dict, load_state_dict))
    for each in objects:
        vars(each).update(state_dict=state_dict, load_state_dict=load_state_dict)


@contextlib.contextmanager
def _unpatched(*objects: object) -> Iterator[None]:
    """Inside, ``objects`` have the methods of their classes."""
    patched = []
    for own in map(vars, objects):
        names = [name for name in ("state_dict", "load_state_dict") if own.get(name) in _patches]
        patched.append((own, {name: own.pop(name) for name in names}))
    try:
        yield
    finally:
        for own, methods in patched:
            own.update(methods)


_patch_model_state_dict = patch_model_state_dict
_patch_optimizer_state_dict = patch_optimizer_state_dict
