"""The user's hooks that ran while a function was recorded, whose Python code does not run in replays."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tenon.graph.guards import HOOKS, LEAF_HOOKS, STEP_HOOKS
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.nn.module import Module
    from tenon.optim.optimizer import Optimizer


def hooks_of(
    modules: Iterable[Module], optimizers: Iterable[Optimizer], leaves: Iterable[Tensor]
) -> list[str]:
    """Describe the hooks on these as ``"hook (on owner)"``; those of tenon are left out."""
    descriptions: dict[str, None] = {}
    owners: Iterable[Module | Optimizer | Tensor]
    for owners, names in ((modules, HOOKS), (optimizers, STEP_HOOKS), (leaves, LEAF_HOOKS)):
        for owner in owners:
            for name in names:
                for hook in (owner.__dict__.get(name) or {}).values():
                    text = _named(hook)
                    if text is not None:
                        descriptions[f"{text} (on {_owner(owner)})"] = None
    for optimizer in optimizers:
        for hook in (hook for each in optimizer._hooks_of_all for hook in each.values()):
            if (text := _named(hook)) is not None:
                descriptions[f"{text} (on all optimizers)"] = None
    return list(descriptions)


def keys_of(hooks: Mapping[int, object]) -> list[int]:
    """The keys of the user's hooks among ``hooks``."""
    return [key for key, hook in hooks.items() if _named(hook) is not None]


def _owner(owner: object) -> str:
    shape = getattr(owner, "shape", None)
    return type(owner).__name__ if shape is None else f"{type(owner).__name__} of shape {list(shape)}"


def _named(hook: object) -> str | None:
    """Return the qualified name of a hook; None if it is tenon's own or marked as without effect."""
    if getattr(hook, "hook_without_effect", False):
        return None
    while isinstance(hook, functools.partial):
        hook = hook.func
    hook = getattr(hook, "__func__", hook)
    module = getattr(hook, "__module__", None) or type(hook).__module__
    if module == "tenon" or module.startswith("tenon."):
        return None
    return str(getattr(hook, "__qualname__", None) or type(hook).__qualname__)
