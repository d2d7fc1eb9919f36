"""Go on with the ranks that are left when others are killed. Experimental.

::

    while True:
        try:
            train()  # reads the last checkpoint, makes model, sampler and synchronizer, steps
            break
        except RankFailedError:
            elastic.shrink()

After ``shrink`` the process's communicator is that of the ranks that are left, numbered anew. Whatever spoke
through the old one (data parallel, samplers, groups) belongs to the past and is made again. It takes an MPI
whose ranks outlive each other: Open MPI, started with ``mpirun --with-ft ulfm``.

A package, as PyTorch's ``elastic.multiprocessing.errors`` is found below it (``compat/faces.py``).
"""

from __future__ import annotations

from tenon.distributed.communication import world
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.processes.launch import adopt
from tenon.errors import UnsupportedError


def missing() -> str | None:
    """Why this job's ranks cannot go on without killed ones; None if they can."""
    communicator = world.get_communicator()
    if communicator.survives:
        return None
    return (
        f"ranks that speak through {communicator.name!r} cannot go on when one of them is killed, as it was "
        "started here. Use Open MPI with mpi4py 4.1 or newer: mpirun --with-ft ulfm -n N ...; or let "
        "`tenon launch --max-restarts` start them again."
    )


def shrink() -> Communicator:
    """Part from killed ranks, after a ``RankFailedError``; every rank that is left calls it.

    Raises ``UnsupportedError`` where ranks cannot outlive each other.
    """
    with world._lock:
        reason = missing()
        if reason is not None:
            raise UnsupportedError(reason)
        communicator = world.get_communicator().shrink()
        adopt(communicator)
    return communicator
