"""Load mpi4py and the MPI library behind it, or say how to get them."""

from __future__ import annotations

from typing import Any

from tenon.extend import engine, errors


def load_mpi() -> Any:
    """The module ``mpi4py.MPI``; importing it starts MPI.

    mpi4py raises RuntimeError where it is installed but finds no MPI library.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        facts = engine.launched()
        started, missing = "", "mpi4py finds no MPI library"
        if facts is not None:
            started = f"started by {facts.launcher} as rank {facts.rank} of {facts.size}, but "
        if isinstance(error, ImportError):
            missing = "mpi4py is not installed"
        raise errors.LaunchError(
            f"{started}{missing} ({error}). Run: pip install 'tenon-platform[mpich]', or "
            f"'tenon-platform[mpi]' to use the MPI of this system."
        ) from error
    return MPI
