"""Declares the CUDA backend; CuPy is imported when a CUDA device is first used."""

from collections.abc import Mapping

from tenon.extend import hookimpl


@hookimpl
def tenon_backends() -> Mapping[str, str]:
    """The backend that serves ``cuda``."""
    return {"cuda": "tenon_cuda.backend:CudaBackend"}
