"""What a state dict says of a model beside its values: a buffer of JSON text as bytes (ADR 0030)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from tenon import tensor, uint8
from tenon.errors import CheckpointError
from tenon.nn.module import Module

_VERSION = 1
#: What a buffer says of each module of a model, by its path: JSON values by name.
Structure: TypeAlias = dict[str, dict[str, Any]]


def note(model: Module, key: str, modules: Mapping[str, Mapping[str, object]]) -> None:
    """Let the buffer ``key`` of ``model`` say what ``modules`` says of its modules, by their paths."""
    text = json.dumps({"version": _VERSION, "modules": modules}, separators=(",", ":"), sort_keys=True)
    model._buffers.pop(key, None)
    model.register_buffer(key, tensor(list(text.encode()), dtype=uint8))


def noted(model: Module, key: str) -> Structure:
    """What the buffer ``key`` of ``model`` says; empty without one."""
    held = model._buffers.get(key)
    return {} if held is None else read(held, key)


def read(held: object, key: str) -> Structure:
    """What a tensor that was the buffer ``key`` says; CheckpointError where it is none."""
    try:
        found = json.loads(bytes(held.cpu().tolist()))  # type: ignore[attr-defined]
        if found["version"] != _VERSION:
            raise CheckpointError(
                f"'{key}' in the state dict has version {found['version']}, and this tenon reads {_VERSION}."
                " Load it with a newer one."
            )
        modules: Structure = found["modules"]
        if not all(isinstance(said, dict) for said in modules.values()):
            raise TypeError("it says no names and values of its modules")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"'{key}' in the state dict is no structure of a model: {error}") from error
    return modules
