"""A model's structure as part of its state dict: a buffer with JSON text as bytes (ADR 0030)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from tenon import tensor, uint8
from tenon.errors import CheckpointError
from tenon.nn.module import Module

_VERSION = 1
#: The state dict of a compressed model: tensors, and what its modules return as extra state.
StateDict: TypeAlias = Mapping[str, Any]
#: A value of JSON, whose type is checked where it is used.
JsonValue: TypeAlias = Any
#: The structure of each module of a model, by its path: JSON values by name.
Structure: TypeAlias = dict[str, dict[str, JsonValue]]


def write_structure(model: Module, key: str, modules: Mapping[str, Mapping[str, object]]) -> None:
    """Write the structure of ``model``, by module path, to its buffer ``key``."""
    text = json.dumps({"version": _VERSION, "modules": modules}, separators=(",", ":"), sort_keys=True)
    model._buffers.pop(key, None)
    model.register_buffer(key, tensor(list(text.encode()), dtype=uint8))


def read_buffer(model: Module, key: str) -> Structure:
    """Return the structure in the buffer ``key`` of ``model``; empty without one."""
    buffer = model._buffers.get(key)
    return {} if buffer is None else parse_structure(buffer, key)


def parse_structure(buffer: object, key: str) -> Structure:
    """Return the structure in a tensor that was the buffer ``key``; CheckpointError if there is none."""
    try:
        content = json.loads(bytes(buffer.cpu().tolist()))  # type: ignore[attr-defined]
        if content["version"] != _VERSION:
            raise CheckpointError(
                f"'{key}' in the state dict has version {content['version']}, and this version of tenon reads"
                f" {_VERSION}. Load it with a newer one."
            )
        modules: Structure = content["modules"]
        if not all(isinstance(module, dict) for module in modules.values()):
            raise TypeError("it has no names and values of modules")
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"'{key}' in the state dict does not describe the structure of a model: {error}"
        ) from error
    return modules
