"""Continue after ranks were killed, by MPI's user-level failure mitigation (ULFM), with Open MPI.

With ``mpirun --with-ft ulfm`` calls that need a killed rank raise instead of ending the job. The first rank
to notice revokes the communicator, so that the calls of all others raise as well, and the survivors shrink it
to one of their own. MPICH has the functions too, but its launcher ends the job anyway. ULFM does not
cover windows of shared memory, hence this works with messages only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tenon.extend import environment, errors

if TYPE_CHECKING:  # library.py imports this module
    from tenon_mpi.library import Mpi, MpiComm

FAILURE_CLASSES = ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")


def requested() -> bool:
    """Whether this job was started with ``mpirun --with-ft ulfm`` of Open MPI."""
    return environment("OMPI_MCA_mpi_ft_enable") == "1"


def available(mpi: Mpi) -> bool:
    """Whether survivors can shrink the communicator; mpi4py has the calls from 4.1 on."""
    return requested() and mpi.Get_library_version().startswith("Open MPI") and hasattr(mpi.Comm, "Shrink")


class FaultTolerantComm:
    """A proxy of an mpi4py communicator whose calls raise ``RankFailedError`` if a rank was killed."""

    def __init__(self, mpi: Mpi, comm: MpiComm) -> None:
        self._comm = comm
        self._error = mpi.Exception
        self._classes = [getattr(mpi, name) for name in FAILURE_CLASSES]

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = getattr(self._comm, name)

        def call(*arguments: object) -> object:
            try:
                return method(*arguments)
            except self._error as error:
                if error.Get_error_class() not in self._classes:
                    raise
                raise errors.RankFailedError(
                    f"a rank was killed, or another one has noticed it ({error.Get_error_string()}). Those"
                    " that are left may call tenon.distributed.elastic.shrink(); dmesg shows whether memory"
                    " ran out."
                ) from error

        setattr(self, name, call)
        return call


def shrink(comm: MpiComm) -> MpiComm:
    """Revoke ``comm`` and return a communicator of its surviving ranks; collective over those."""
    comm.Revoke()
    return comm.Shrink()


__all__ = ["FaultTolerantComm", "available", "requested", "shrink"]
