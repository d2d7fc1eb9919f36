"""Tensors sorted by device and dtype, as lists of them need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.device import Device
from tenon.tensors.tensor import Tensor

__all__: list[str] = []


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Any]], with_indices: bool = False
) -> dict[tuple[Device, Any], tuple[list[list[Any]], list[int]]]:
    """``(device, dtype)`` of the first list's tensors -> the parts of all lists there, and their places.

    The other lists are as long as the first, or empty, and may hold None.
    """
    groups: dict[tuple[Device, Any], tuple[list[list[Any]], list[int]]] = {}
    for index, tensor in enumerate(tensorlistlist[0]):
        lists, places = groups.setdefault((tensor.device, tensor.dtype), ([[] for _ in tensorlistlist], []))
        for part, whole in zip(lists, tensorlistlist, strict=True):
            if whole:
                part.append(whole[index])
        if with_indices:
            places.append(index)
    return groups


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Devices with kernels for whole lists: none here, ``torch._foreach_*`` goes from tensor to tensor."""
    return []


def _get_fused_kernels_supported_devices() -> list[str]:
    """Devices whose optimizers may say ``fused=True``."""
    return ["cuda", "cpu"]


def _device_has_foreach_support(device: Device) -> bool:
    """Whether ``torch._foreach_*`` takes tensors there."""
    return device.type in ("cuda", "cpu")


def _has_foreach_support(tensors: Sequence[Any], device: Device) -> bool:
    """Whether ``torch._foreach_*`` takes these tensors: plain ones, and None."""
    return _device_has_foreach_support(device) and all(t is None or type(t) is Tensor for t in tensors)
