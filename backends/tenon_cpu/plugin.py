"""Declares the CPU backend."""

from collections.abc import Mapping

from tenon.extend import hookimpl


@hookimpl
def tenon_backends() -> Mapping[str, str]:
    """The backend that serves ``cpu``."""
    return {"cpu": "tenon_cpu.backend:CpuBackend"}
