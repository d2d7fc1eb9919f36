"""Group lists of tensors by device and dtype, under PyTorch's private names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from tenon.device import Device
from tenon.dtypes import dtype
from tenon.tensors.tensor import Tensor

__all__: list[str] = []

#: The tensors of one device and dtype, a sublist for each list, and their indices.
Group: TypeAlias = tuple[list[list[Tensor | None]], list[int]]


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Tensor | None]], with_indices: bool = False
) -> dict[tuple[Device, dtype], Group]:
    """Map ``(device, dtype)`` of the first list's tensors to the sublists of all lists, and their indices.

    The other lists have the length of the first, or are empty, and may contain None.
    """
    groups: dict[tuple[Device, dtype], Group] = {}
    first: Sequence[Any] = tensorlistlist[0]  # holds no None
    for index, tensor in enumerate(first):
        sublists, indices = groups.setdefault(
            (tensor.device, tensor.dtype), ([[] for _ in tensorlistlist], [])
        )
        for sublist, tensors in zip(sublists, tensorlistlist, strict=True):
            if tensors:
                sublist.append(tensors[index])
        if with_indices:
            indices.append(index)
    return groups


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Return the devices with foreach kernels: none here, ``torch._foreach_*`` loops over the tensors."""
    return []


def _get_fused_kernels_supported_devices() -> list[str]:
    """Return the devices on which optimizers accept ``fused=True``."""
    return ["cuda", "cpu"]


def _device_has_foreach_support(device: Device) -> bool:
    """Whether ``torch._foreach_*`` accepts tensors on this device."""
    return device.type in ("cuda", "cpu")


def _has_foreach_support(tensors: Sequence[Tensor | None], device: Device) -> bool:
    """Whether ``torch._foreach_*`` accepts these tensors: plain tensors, and None."""
    return _device_has_foreach_support(device) and all(t is None or type(t) is Tensor for t in tensors)
