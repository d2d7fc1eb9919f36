"""torch's module of these names: ``from tenon.distributed.distributed_c10d import ProcessGroup``."""

from __future__ import annotations

from typing import Any

from tenon import distributed
from tenon.distributed.communication import world
from tenon.distributed.communication.communicator import Communicator

__all__ = list(distributed.__all__)


def _get_default_group() -> Communicator:
    """The communicator of all ranks, made at the first use."""
    return world.get_communicator()


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(distributed, name)
