"""The state of the random numbers of CUDA devices, by torch's names.

They are drawn on the host from the same stream as all others: each state is ``tenon.get_rng_state()``.
Where CUDA cannot be used there are no devices and no states, as in torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon import cuda, random

__all__ = ["get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all"]


def get_rng_state(device: Any = "cuda") -> Any:
    """The state of a device's numbers; DeviceError where CUDA cannot be used."""
    cuda.init()
    return random.get_rng_state()


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Go on from ``new_state``; DeviceError where CUDA cannot be used."""
    cuda.init()
    random.set_rng_state(new_state)


def get_rng_state_all() -> list[Any]:
    """The state of each device."""
    return [random.get_rng_state() for _ in range(cuda.device_count())]


def set_rng_state_all(new_states: Sequence[Any]) -> None:
    """Go on from the states that ``get_rng_state_all`` gave."""
    for state in new_states:
        set_rng_state(state)
