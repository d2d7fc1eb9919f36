"""Give the meta tensors of a state dict memory, so that a checkpoint can be loaded into them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.distributed.checkpoint.metadata import STATE_DICT_TYPE
from tenon.distributed.tensor.dtensor import DTensor, wrap
from tenon.nn.parameter import Parameter
from tenon.tensors.creation import factories
from tenon.tensors.tensor import Tensor


def materialize(state_dict: STATE_DICT_TYPE) -> None:
    """Replace the meta tensors in ``state_dict``, and in dicts and lists in it, by tensors of the same kind
    in memory, whose values are undefined."""
    for key, value in state_dict.items():
        state_dict[key] = _replaced(value)


def _replaced(value: Any) -> Any:  # of the same type
    if isinstance(value, Tensor):
        return _in_memory(value) if value.device.type == "meta" else value
    if isinstance(value, dict):
        for key, item in value.items():
            value[key] = _replaced(item)
        return value
    if type(value) in (list, tuple) and _has_tensors(value):
        make: Callable[[list[object]], object] = type(value)
        return make([_replaced(item) for item in value])
    return value


def _has_tensors(items: list[object] | tuple[object, ...]) -> bool:
    return any(isinstance(item, (Tensor, dict, list, tuple)) for item in items)


def _in_memory(tensor: Tensor) -> Tensor:
    if isinstance(tensor, DTensor):
        local = factories.empty(tensor.raw.local.shape, dtype=tensor.dtype)
        found: Tensor = wrap(local, tensor.device_mesh, tensor.placements, tuple(tensor.shape))
    else:
        found = factories.empty(tensor.shape, dtype=tensor.dtype)
    return Parameter(found, tensor.requires_grad) if isinstance(tensor, Parameter) else found
