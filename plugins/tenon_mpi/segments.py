"""Unlink MPICH's shared-memory segments early, so that killed ranks leave no files behind.

MPICH keeps the memory that the ranks of a node share in ``/dev/shm/mpich_shm_*``, 4 MB a job, and removes the
file only in ``MPI_Finalize``: every killed or aborted job would leave one until the next reboot. Once all
ranks have mapped it, its name is no longer needed and is unlinked; the memory is freed with the last
rank.
"""

from __future__ import annotations

import os

from tenon_mpi.library import MpiComm

PREFIX = "/dev/shm/mpich_shm_"


def unlink_segments(node: MpiComm) -> None:
    """Remove the names of this job's segments; ``node`` is the communicator of ranks that share memory."""
    node.Barrier()
    if node.Get_rank() == 0:
        for path in _mapped():
            if os.path.exists(path):
                os.unlink(path)


def _mapped() -> set[str]:
    """The segments that this process has mapped; none where there is no ``/proc``, as on macOS."""
    if not os.path.exists("/proc/self/maps"):
        return set()
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return {
            line[line.index(PREFIX) :].rstrip() for line in maps if PREFIX in line and "(deleted)" not in line
        }
