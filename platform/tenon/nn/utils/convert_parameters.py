"""Conversion of all parameters to one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tenon.engine.op import table
from tenon.errors import DeviceError, ModuleTypeError, ModuleValueError
from tenon.nn.registration import typename
from tenon.tensors.tensor import Tensor


def _on_one_device(parameters: Iterable[Any]) -> list[Any]:
    result = list(parameters)
    devices = {str(parameter.device) for parameter in result}
    if len(devices) > 1:
        raise DeviceError(
            f"Found two parameters on different devices ({', '.join(sorted(devices))}), this is currently "
            f"not "
            "supported. Move the module with .to(device) first."
        )
    return result


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """One flat tensor of all ``parameters``; gradients flow back to them."""
    vector: Tensor = table.cat(*(parameter.reshape(-1) for parameter in _on_one_device(parameters)), axis=0)
    return vector


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Exchange the data of ``parameters`` for consecutive slices of ``vec``."""
    if not isinstance(vec, Tensor):
        raise ModuleTypeError(f"expected torch.Tensor, but got: {typename(vec)}")
    targets = _on_one_device(parameters)
    total = sum(target.numel() for target in targets)
    if total > vec.numel():
        raise ModuleValueError(f"the parameters have {total} elements in all, the vector only {vec.numel()}.")
    start = 0
    for target in targets:
        end = start + target.numel()
        target.data = vec[start:end].view_as(target).data
        start = end
