"""PyTorch's ``torch.accelerator``: functions for the accelerator of this machine, which is CUDA or none."""

from __future__ import annotations

from tenon import cuda
from tenon.device import Device, DeviceLike

__all__ = [
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "device_count",
    "is_available",
    "set_device_idx",
    "set_device_index",
    "synchronize",
]

#: The types of devices that count as GPUs (``torch._inductor.utils``).
GPU_TYPES = ["cuda", "mps", "xpu", "mtia"]


def is_available() -> bool:
    """Whether an accelerator is available."""
    return cuda.is_available()


def current_accelerator(check_available: bool = False) -> Device | None:
    """Return ``device("cuda")`` if CUDA is available, else None."""
    return Device("cuda") if cuda.is_available() else None


def device_count() -> int:
    """Return the number of accelerators visible to this process."""
    return cuda.device_count()


def current_device_index() -> int:
    """Return the index of the current accelerator."""
    return cuda.current_device()


def set_device_index(device: DeviceLike, /) -> None:
    """Set the current accelerator."""
    cuda.set_device(device)


current_device_idx, set_device_idx = current_device_index, set_device_index


def synchronize(device: DeviceLike = None, /) -> None:
    """Wait until all work submitted to the accelerator is done."""
    cuda.synchronize(device)
