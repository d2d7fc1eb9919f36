"""torch's names of what carries messages between ranks; MPI does, whichever of them is asked for."""

from __future__ import annotations

import importlib.util
from datetime import timedelta
from enum import IntEnum
from typing import Any, ClassVar

from tenon.config import environment
from tenon.device import Device
from tenon.errors import ArgumentError

default_pg_timeout = timedelta(minutes=30)
"""torch's; here ``TENON_WATCHDOG`` says how long ranks wait for each other."""


class Backend(str):
    """torch's names of backends, in lower case: ``Backend("GLOO")`` and ``Backend.GLOO`` are "gloo"."""

    __slots__ = ()

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    UCC = "ucc"
    MPI = "mpi"
    XCCL = "xccl"
    backend_list = (UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI)
    default_device_backend_map: ClassVar = {"cpu": GLOO, "cuda": NCCL}

    def __new__(cls, name: str) -> str:  # type: ignore[misc]
        """The name as plain text."""
        if not isinstance(name, str):
            raise ArgumentError(f"Backend constructor parameter must be string-ish, not {name!r}.")
        return name.lower()


class DebugLevel(IntEnum):
    """What ``TORCH_DISTRIBUTED_DEBUG`` may say. Ranks always compare their calls here, whatever it is."""

    OFF = 0
    INFO = 1
    DETAIL = 2


def get_debug_level() -> DebugLevel:
    """The level that the environment names, ``OFF`` without one; nothing depends on it."""
    name = (environment("TORCH_DISTRIBUTED_DEBUG") or "OFF").upper()
    return DebugLevel[name] if name in DebugLevel.__members__ else DebugLevel.OFF


def is_gloo_available() -> bool:
    """Always true: ``init_process_group("gloo")`` works, through MPI or alone."""
    return True


def is_mpi_available() -> bool:
    """Whether mpi4py is installed; MPI itself is not loaded."""
    return importlib.util.find_spec("mpi4py") is not None


def is_nccl_available() -> bool:
    """Always false: arrays of GPUs go through the host."""
    return False


is_ucc_available = is_xccl_available = is_nccl_available


def is_backend_available(backend: str) -> bool:
    """Whether ranks can speak under this name; for "cpu:gloo,cuda:nccl", under each of them."""
    names = [part.rpartition(":")[2] for part in backend.lower().split(",")]
    available = {"gloo": is_gloo_available, "mpi": is_mpi_available}
    return all(name in available and available[name]() for name in names)


def is_torchelastic_launched() -> bool:
    """Whether ``torchrun`` started this process. It cannot start ranks here: use ``mpirun``."""
    return environment("TORCHELASTIC_RUN_ID") is not None


def get_default_backend_for_device(device: Any) -> str:
    """The name that torch's scripts ask for on such a device."""
    kind = Device(device).type
    if kind not in Backend.default_device_backend_map:
        raise ArgumentError(f"Default backend not registered for device : {device}")
    return Backend.default_device_backend_map[kind]
