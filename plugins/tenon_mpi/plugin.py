"""MPI communicator for tenon, through mpi4py: ``mpirun -n N python train.py`` and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from tenon.extend import hookimpl


@hookimpl
def tenon_configure() -> None:
    """Add a section about the MPI library to ``tenon doctor``."""
    from tenon.extend import doctor_section

    doctor_section("mpi")(_library)


@hookimpl
def tenon_communicators() -> dict[str, str]:
    """Declare the MPI communicators, one for each transport."""
    return {
        "mpi": "tenon_mpi.communicator:MpiCommunicator",
        "mpi-hierarchical": "tenon_mpi.communicator:HierarchicalCommunicator",
        "mpi-messages": "tenon_mpi.communicator:MessageCommunicator",
        "mpi-shared": "tenon_mpi.communicator:SharedCommunicator",
    }


def _library() -> Iterable[tuple[str, str]]:
    from tenon_mpi.doctor import rows

    return rows()
