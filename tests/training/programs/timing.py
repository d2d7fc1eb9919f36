"""A plugin that times, in every rank of `tenon train`, the steps of full batches, and says what memory they took.

Written to ``timed-RANK.json`` in the folder ``$TIMED``.
"""

import json
import os
import statistics
import time

from tenon.extend import hookimpl
from tenon_plan.plan import memory

WARM = 6


class State:
    began = 0.0
    full = False
    seconds = []
    peak = 0


@hookimpl
def tenon_step_begin(session, step):
    State.full = session.position + session.config.batch_size <= len(session.data.train)
    State.began = time.perf_counter()


@hookimpl
def tenon_step_end(session, step, metrics):
    if State.full:
        State.seconds.append(time.perf_counter() - State.began)
    State.peak = memory.peak()


@hookimpl
def tenon_session_finish(session, error):
    found = {"seconds": statistics.median(State.seconds[WARM:] or State.seconds), "peak": State.peak}
    with open(os.path.join(os.environ["TIMED"], f"timed-{session.rank}.json"), "w") as file:
        json.dump(found, file)
