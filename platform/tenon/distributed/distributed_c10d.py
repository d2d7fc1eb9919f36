"""torch's path of the names of ``tenon.distributed``, as ``distributed_c10d.ProcessGroup``."""

from __future__ import annotations

from typing import Any

from tenon import distributed
from tenon.distributed.communication import world
from tenon.distributed.communication.communicator import Communicator

__all__ = list(distributed.__all__)


def _get_default_group() -> Communicator:
    """The communicator of all ranks, created at the first use."""
    return world.get_communicator()


def __getattr__(name: str) -> Any:  # a class, function or module
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(distributed, name)
