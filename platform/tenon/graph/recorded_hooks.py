"""Which hooks of the user's ran while a function was recorded: their Python does not run in replays."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from tenon.graph.guards import HOOKS, LEAF_HOOKS, STEP_HOOKS


def hooks_of(modules: Iterable[Any], optimizers: Iterable[Any], leaves: Iterable[Any]) -> list[str]:
    """The hooks on these, as ``hook (on what)``; tenon's own are left out."""
    found: dict[str, None] = {}
    for owners, names in ((modules, HOOKS), (optimizers, STEP_HOOKS), (leaves, LEAF_HOOKS)):
        for owner in owners:
            for name in names:
                for hook in (owner.__dict__.get(name) or {}).values():
                    text = _named(hook)
                    if text is not None:
                        found[f"{text} (on {_owner(owner)})"] = None
    return list(found)


def _owner(owner: Any) -> str:
    shape = getattr(owner, "shape", None)
    return type(owner).__name__ if shape is None else f"{type(owner).__name__} of shape {list(shape)}"


def _named(hook: Any) -> str | None:
    if getattr(hook, "hook_without_effect", False):
        return None
    while isinstance(hook, functools.partial):
        hook = hook.func
    hook = getattr(hook, "__func__", hook)
    module = getattr(hook, "__module__", None) or type(hook).__module__
    if module == "tenon" or module.startswith("tenon."):
        return None
    return str(getattr(hook, "__qualname__", None) or type(hook).__qualname__)
