"""The names of a model's values without what distributes it: without ``module.``, ``_orig_mod.`` and
others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tenon.distributed.fsdp.checkpoint_wrapper import CheckpointWrapper
from tenon.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel
from tenon.distributed.fsdp.options import StateDictType
from tenon.distributed.fsdp.state_dicts import WRAPPED
from tenon.distributed.replicas.data_parallel import DistributedDataParallel
from tenon.errors import ArgumentError
from tenon.nn.module import Module
from tenon.nn.optimized_module import OptimizedModule

#: A wrapper of modules -> the name of the module in it.
WRAPPERS: dict[type[Module], str] = {
    CheckpointWrapper: "_checkpoint_wrapped_module",
    DistributedDataParallel: "module",
    FullyShardedDataParallel: WRAPPED,
    OptimizedModule: "_orig_mod",
}


def canonical(model: Module, name: str) -> str:
    """The name in the plain model of what ``model`` calls ``name``.

    >>> from tenon import nn
    >>> canonical(OptimizedModule(nn.Sequential(nn.Linear(1, 1)), None), "_orig_mod.0.weight")
    '0.weight'
    """
    module: Module | None = model
    found = []
    for part in name.split("."):
        while module is not None and (inner := _inner(module)) is not None and inner != part:
            module = module._modules[inner]  # a wrapper that leaves its name out of keys
        if module is None or _inner(module) != part:
            found.append(part)
        module = None if module is None else module._modules.get(part)
    return ".".join(found)


def _inner(module: Module) -> str | None:
    for kind, name in WRAPPERS.items():
        if isinstance(module, kind):
            return name
    return None


def prefix_of(model: Module, module: Module) -> str:
    """What the names of the values of ``module`` begin with in the plain ``model``."""
    for name, each in model.named_modules():
        if each is module:
            found = canonical(model, name)
            return f"{found}." if found else ""
    raise ArgumentError(f"the {type(module).__name__} is not in the model. Pass a module of model.modules().")


def model_state(model: Module) -> dict[str, tuple[str, object]]:
    """The state dict of ``model``, DTensors where it is sharded: plain name -> its own key, and the value."""
    with sharded_state_dicts(model):
        state = model.state_dict()
    return {canonical(model, key): (key, value) for key, value in state.items()}


@contextlib.contextmanager
def sharded_state_dicts(model: Module) -> Iterator[None]:
    """Inside, ``FullyShardedDataParallel`` modules have state dicts of DTensors."""
    if not any(isinstance(module, FullyShardedDataParallel) for module in model.modules()):
        yield
        return
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        yield
