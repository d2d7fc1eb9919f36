"""Continue with the surviving ranks after others were killed. Experimental.

::

    while True:
        try:
            train()  # loads the last checkpoint, creates model, sampler and synchronizer, and trains
            break
        except RankFailedError:
            elastic.shrink()

After ``shrink`` the process's communicator consists of the surviving ranks, renumbered. Objects that used the
old one (data-parallel models, samplers, groups) must be created again. This needs an MPI whose ranks survive
the failure of others: Open MPI, started with ``mpirun --with-ft ulfm``.

A package, as PyTorch's ``elastic.multiprocessing.errors`` is found below it (``compat/reexports.py``).
"""

from __future__ import annotations

from tenon.distributed.communication import world
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.processes.launch import adopt
from tenon.errors import UnsupportedError


def missing() -> str | None:
    """The reason why this job's ranks cannot survive the failure of others; None if they can."""
    communicator = world.get_communicator()
    if communicator.survives:
        return None
    return (
        f"ranks that communicate by {communicator.name!r} cannot continue when one of them is killed, the way"
        f" this "
        "job was started. Use Open MPI with mpi4py 4.1 or newer: mpirun --with-ft ulfm -n N ...; or let "
        "`tenon launch --max-restarts` start them again."
    )


def shrink() -> Communicator:
    """Make the surviving ranks the process group, after a ``RankFailedError``; every survivor calls this.

    Raises ``UnsupportedError`` if ranks cannot survive the failure of others.
    """
    with world._lock:
        reason = missing()
        if reason is not None:
            raise UnsupportedError(reason)
        communicator = world.get_communicator().shrink()
        adopt(communicator)
    return communicator
