"""What ``import tenon`` does first when a launcher started the process: share the cores, watch for failures.

Without a launcher this costs a few dictionary look-ups and changes nothing, unless ``TENON_NUM_THREADS`` is
set.
"""

from __future__ import annotations

import weakref

from tenon.config import environment, process_environment
from tenon.distributed.processes.launcher import RankFacts, detect
from tenon.engine import watch

ATTEMPT = "TENON_ATTEMPT"
"""The variable by which ``tenon launch`` tells ranks how often they were started."""


def launched() -> RankFacts | None:
    """The facts of the launcher that started this process; None without one, or with a single rank."""
    facts = detect(process_environment())
    return facts if facts is not None and facts.size > 1 else None


def prepare() -> RankFacts | None:
    """Set thread counts and install the failure hooks, if this process is one of several ranks.

    The hooks come this early because an MPI job hangs when one rank dies of an import error while the
    others already wait inside ``MPI_Init``. Modules that are walked are remembered from here on, so that
    ``identity.py`` can name parameters.
    """
    facts = launched()
    if facts is not None or environment("TENON_NUM_THREADS"):
        from tenon.distributed.processes import threads

        threads.limit_threads(facts, process_environment())
    if facts is not None:
        from tenon.distributed.processes import failure

        failure.install(facts, process_environment())
        watch.walked = weakref.WeakSet()
        if environment(ATTEMPT):
            from tenon.distributed.processes.orphans import end_with_parent

            end_with_parent()  # MPICH's mpirun ends its ranks when it dies, Open MPI's leaves them.
    return facts
