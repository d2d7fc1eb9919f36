"""States of the random numbers of single devices, of which there are none: all draw from one stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["get_device_states", "set_device_states"]


def get_device_states(*args: Any) -> tuple[list[int], list[Any]]:
    """Numbers of the devices that ``args`` lie on, and the states of their own random numbers: none."""
    return [], []


def set_device_states(devices: Sequence[int], states: Sequence[Any], *, device_type: Any = None) -> None:
    """Nothing: what ``get_device_states`` gave is empty."""
