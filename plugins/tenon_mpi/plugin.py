"""MPI communicator for tenon, through mpi4py: ``mpirun -n N python train.py`` and nothing else."""

from __future__ import annotations

from tenon.extend import hookimpl


@hookimpl
def tenon_communicators() -> dict[str, str]:
    """Ranks that talk over MPI."""
    return {
        "mpi": "tenon_mpi.communicator:MpiCommunicator",
        "mpi-hierarchical": "tenon_mpi.communicator:HierarchicalCommunicator",
        "mpi-messages": "tenon_mpi.communicator:MessageCommunicator",
        "mpi-shared": "tenon_mpi.communicator:SharedCommunicator",
    }
