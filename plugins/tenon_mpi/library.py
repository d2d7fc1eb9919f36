"""Load mpi4py and the MPI library behind it, or say how to get them."""

from __future__ import annotations

from collections.abc import MutableMapping
from importlib import metadata
from typing import Any

from tenon.extend import engine, errors, process_environment
from tenon_mpi import survivors


def load_mpi() -> Any:
    """The module ``mpi4py.MPI``; importing it starts MPI.

    Where mpi4py is installed but finds no MPI library, it raises RuntimeError or an ImportError.
    """
    # Open MPI's wheel prints a line for every window, because of a component that is for other networks.
    # It reads this variable when it starts, and other MPIs do not know it.
    process_environment().setdefault("OMPI_MCA_osc", "^ucx")
    shorten_addresses(process_environment())
    try:
        if survivors.wanted():
            import mpi4py

            mpi4py.rc.finalize = False  # MPI_Finalize hangs now and then when a rank was killed before.
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


def shorten_addresses(environment: MutableMapping[str, str]) -> None:
    """Let the MPICH wheel reach other nodes of a Slurm step through libfabric, unless told otherwise.

    Of UCX it publishes 4 KB, mostly what was in memory, in lines that may exceed the 1,024 bytes at which
    Slurm's ``pmi2`` cuts them; then some starts hang or die (mpich#6924). libfabric's address is 16 bytes.
    """
    several = environment.get("SLURM_STEP_NUM_NODES", "1") != "1"
    if several and "PMI_FD" in environment and any(metadata.distributions(name="mpich")):
        environment.setdefault("MPIR_CVAR_CH4_NETMOD", "ofi")
