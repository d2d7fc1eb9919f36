"""Conversion of all parameters to one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from tenon.engine.op import table
from tenon.errors import DeviceError, ModuleTypeError, ModuleValueError
from tenon.nn.registration import typename
from tenon.tensors.tensor import Tensor


def _on_one_device(parameters: Iterable[Tensor]) -> list[Tensor]:
    """Return ``parameters`` as a list; raise DeviceError if they are on several devices."""
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
    """Return all ``parameters`` as one vector; gradients flow back to them."""
    return table.cat(*(parameter.reshape(-1) for parameter in _on_one_device(parameters)), axis=0)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Set the data of ``parameters`` to consecutive slices of ``vec``."""
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
