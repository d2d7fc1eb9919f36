"""The prefix ``module.`` that torch's ``DistributedDataParallel`` adds to the keys of state dicts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from tenon.nn.module import Module

PREFIX = "module."


def without_prefix(state_dict: Mapping[str, object], module: Module) -> Mapping[str, object]:
    """``state_dict`` without the prefix in its keys and metadata, if it is of a wrapped ``module``."""
    if not is_prefixed(state_dict, "", module):
        return state_dict
    # Any, as it gets an attribute that its class does not have.
    stripped: Any = OrderedDict((key.removeprefix(PREFIX), value) for key, value in state_dict.items())
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        stripped._metadata = {key.removeprefix("module").removeprefix("."): metadata[key] for key in metadata}
    return stripped


def add_prefix(state_dict: dict[str, object], prefix: str, module: Module) -> None:
    """Add ``module.`` to the keys below ``prefix``, in place, if they are of an unwrapped ``module``."""
    if is_prefixed(state_dict, prefix, module):
        return
    for key in [key for key in state_dict if key.startswith(prefix)]:
        state_dict[prefix + PREFIX + key[len(prefix) :]] = state_dict.pop(key)


def is_prefixed(state_dict: Mapping[str, object], prefix: str, module: Module) -> bool:
    """Whether the keys below ``prefix`` begin with ``module.``: without it, more are keys of ``module``."""
    own = set(module.state_dict())
    keys = [key[len(prefix) :] for key in state_dict if key.startswith(prefix)]
    stripped = sum(key.startswith(PREFIX) and key.removeprefix(PREFIX) in own for key in keys)
    return stripped > sum(key in own for key in keys)
