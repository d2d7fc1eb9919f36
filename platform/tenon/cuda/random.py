"""The state of the random number generators of CUDA devices, under PyTorch's names.

The numbers of all devices are drawn on the host from one stream: each state is ``tenon.get_rng_state()``.
Where CUDA cannot be used there are no devices and no states, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tenon import cuda, random
from tenon.device import DeviceLike

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

__all__ = ["get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all"]


def get_rng_state(device: DeviceLike = "cuda") -> Tensor:
    """Return the state of a device's generator; DeviceError where CUDA cannot be used."""
    cuda.init()
    return random.get_rng_state()


def set_rng_state(new_state: Tensor, device: DeviceLike = "cuda") -> None:
    """Set the state of a device's generator; DeviceError where CUDA cannot be used."""
    cuda.init()
    random.set_rng_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """Return the list of the states of all devices' generators, which are all equal."""
    return [random.get_rng_state() for _ in range(cuda.device_count())]


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Set the states of all devices' generators, as ``get_rng_state_all`` returned them."""
    for state in new_states:
        set_rng_state(state)
