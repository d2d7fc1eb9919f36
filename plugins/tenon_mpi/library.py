"""Load mpi4py and the MPI library behind it, or say how to get them."""

from __future__ import annotations

from typing import Any

from tenon.extend import engine, errors, process_environment


def load_mpi() -> Any:
    """The module ``mpi4py.MPI``; importing it starts MPI.

    Where mpi4py is installed but finds no MPI library, it raises RuntimeError or an ImportError.
    """
    # Open MPI's wheel prints a line for every window, because of a component that is for other networks.
    # It reads this variable when it starts, and other MPIs do not know it.
    process_environment().setdefault("OMPI_MCA_osc", "^ucx")
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        facts = engine.launched()
        started, missing = "", "mpi4py finds no MPI library that it can load"
        if facts is not None:
            started = f"started by {facts.launcher} as rank {facts.rank} of {facts.size}, but "
        if isinstance(error, ModuleNotFoundError):
            missing = "mpi4py is not installed"
        raise errors.LaunchError(
            f"{started}{missing} ({error}). Run: pip install 'tenon-platform[mpich]', or "
            "'tenon-platform[mpi]' to use the MPI of this system; if that is Open MPI, "
            "set MPI4PY_MPIABI=openmpi as well (deploy/README.md has more)."
        ) from error
    return MPI
