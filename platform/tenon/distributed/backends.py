"""torch's names of communication backends; MPI is used whichever of them is requested."""

from __future__ import annotations

import importlib.util
from datetime import timedelta
from enum import IntEnum
from typing import ClassVar

from tenon.config import environment
from tenon.device import Device
from tenon.errors import ArgumentError

default_pg_timeout = timedelta(minutes=30)
"""torch's default; here ``TENON_WATCHDOG`` limits how long ranks wait for each other."""


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
    """The levels of ``TORCH_DISTRIBUTED_DEBUG``. Here ranks always compare their calls, at any level."""

    OFF = 0
    INFO = 1
    DETAIL = 2


def get_debug_level() -> DebugLevel:
    """The level in the environment, ``OFF`` by default; it has no effect."""
    name = (environment("TORCH_DISTRIBUTED_DEBUG") or "OFF").upper()
    return DebugLevel[name] if name in DebugLevel.__members__ else DebugLevel.OFF


def is_gloo_available() -> bool:
    """Always true: ``init_process_group("gloo")`` works, over MPI or with one rank."""
    return True


def is_mpi_available() -> bool:
    """Whether mpi4py is installed; MPI itself is not loaded."""
    return importlib.util.find_spec("mpi4py") is not None


def is_nccl_available() -> bool:
    """Always false: the arrays of GPUs are staged through the host."""
    return False


is_ucc_available = is_xccl_available = is_nccl_available


def is_backend_available(backend: str) -> bool:
    """Whether ``init_process_group`` accepts this backend; for "cpu:gloo,cuda:nccl", each of them."""
    names = [part.rpartition(":")[2] for part in backend.lower().split(",")]
    available = {"gloo": is_gloo_available, "mpi": is_mpi_available}
    return all(name in available and available[name]() for name in names)


def is_torchelastic_launched() -> bool:
    """Whether ``torchrun`` started this process, which cannot start ranks here: use ``mpirun``."""
    return environment("TORCHELASTIC_RUN_ID") is not None


def get_default_backend_for_device(device: Device | str | int) -> str:
    """torch's default backend for devices of this type."""
    kind = Device(device).type
    if kind not in Backend.default_device_backend_map:
        raise ArgumentError(f"Default backend not registered for device : {device}")
    return Backend.default_device_backend_map[kind]
