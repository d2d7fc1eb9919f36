"""Random states of single devices, of which there are none, as all devices share one generator."""

from __future__ import annotations

from collections.abc import Sequence

from tenon.device import DeviceLike
from tenon.tensors.tensor import Tensor

__all__ = ["get_device_states", "set_device_states"]


def get_device_states(*args: object) -> tuple[list[int], list[Tensor]]:
    """Return the indices of devices that ``args`` are on, and their generators' states: empty lists."""
    return [], []


def set_device_states(
    devices: Sequence[int], states: Sequence[Tensor], *, device_type: DeviceLike = None
) -> None:
    """Do nothing, as ``get_device_states`` returns no states."""
