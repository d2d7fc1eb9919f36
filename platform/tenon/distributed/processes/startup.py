"""Process setup by ``import tenon`` under a launcher: limit threads, set variables, install failure hooks.

Without a launcher this costs a few dictionary look-ups, and changes nothing unless ``TENON_NUM_THREADS`` is
set.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from tenon.config import environment, process_environment
from tenon.distributed.communication import world
from tenon.distributed.processes.launcher import RankFacts, launched
from tenon.distributed.processes.recent_modules import RECENT_MODULES

if TYPE_CHECKING:
    from tenon.distributed.communication.communicator import Communicator

ATTEMPT = "TENON_ATTEMPT"
"""Environment variable in which ``tenon launch`` passes the number of the attempt."""
LAUNCH = "TENON_LAUNCH"
"""Environment variable in which ``tenon launch`` passes an identifier that its attempts share."""


def attempt() -> int:
    """The number of the attempt of ``tenon launch`` in which this process runs; 0 without it."""
    text = environment(ATTEMPT) or ""
    return int(text) if text.isdecimal() else 0


def _launch() -> Communicator:
    from tenon.distributed.processes.launch import launch  # imports NumPy

    return launch()


def _name_as_torchrun(facts: RankFacts) -> None:
    """Set the variables that scripts for ``torchrun`` read, such as ``LOCAL_RANK``, unless they are set."""
    values = zip(
        ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
        (facts.rank, facts.size, facts.local_rank, facts.local_size),
        strict=True,
    )
    for name, value in values:
        process_environment().setdefault(name, str(value))


def prepare() -> RankFacts | None:
    """Set thread counts and install the failure hooks, if this process is one of several ranks.

    The hooks are installed this early because an MPI job hangs when one rank ends with an import error while
    the others already wait inside ``MPI_Init``. From here on, modules whose parameters are iterated are
    recorded, so that ``identity.py`` can name parameters.
    """
    world.launch_with(_launch)
    facts = launched()
    if facts is not None or environment("TENON_NUM_THREADS"):
        from tenon.distributed.processes import threads

        threads.limit_threads(facts, process_environment())
    if facts is not None:
        from tenon.distributed.processes import failure

        _name_as_torchrun(facts)
        failure.install(facts, process_environment()).start_early_monitor(process_environment())
        RECENT_MODULES.modules = weakref.WeakSet()
        if environment(ATTEMPT):
            from tenon.distributed.processes.orphans import end_with_parent

            end_with_parent()  # When mpirun is killed, MPICH's terminates its ranks, Open MPI's does not.
    return facts
