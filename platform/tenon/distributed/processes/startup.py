"""Process setup by ``import tenon`` under a launcher: divide the cores, install failure hooks.

Without a launcher this costs a few dictionary look-ups and changes nothing, unless ``TENON_NUM_THREADS`` is
set.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from tenon.config import environment, process_environment
from tenon.distributed.communication import world
from tenon.distributed.processes.launcher import RankFacts, launched
from tenon.distributed.processes.walked import WALKED

if TYPE_CHECKING:
    from tenon.distributed.communication.communicator import Communicator

ATTEMPT = "TENON_ATTEMPT"
"""Environment variable with the number of the attempt, set by ``tenon launch``."""


def _launch() -> Communicator:
    from tenon.distributed.processes.launch import launch  # imports NumPy

    return launch()


def prepare() -> RankFacts | None:
    """Set thread counts and install the failure hooks, if this process is one of several ranks.

    The hooks come this early because an MPI job hangs when one rank dies of an import error while the others
    already wait inside ``MPI_Init``. Modules whose parameters are iterated are recorded from here on, so that
    ``identity.py`` can name parameters.
    """
    world.launch_with(_launch)
    facts = launched()
    if facts is not None or environment("TENON_NUM_THREADS"):
        from tenon.distributed.processes import threads

        threads.limit_threads(facts, process_environment())
    if facts is not None:
        from tenon.distributed.processes import failure

        failure.install(facts, process_environment())
        WALKED.modules = weakref.WeakSet()
        if environment(ATTEMPT):
            from tenon.distributed.processes.orphans import end_with_parent

            end_with_parent()  # MPICH's mpirun ends its ranks when it dies, Open MPI's leaves them.
    return facts
