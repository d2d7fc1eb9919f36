"""A plugin that counts, in every rank of `tenon train`, what a step communicates, needs and takes.

Written to ``counted-RANK.json`` in the working directory. Bytes are counted where mpi4py is called: what a rank
passes to a collective for the others. The comparisons of calls (all-reduces of 32 bytes) are counted apart.
"""

import json
import os
import statistics
import time

from mpi4py import MPI

from tenon.extend import hookimpl
from tenon_mpi.communicator import MpiCommunicator
from tenon_plan.plan import memory

WARM = 5


class State:
    calls = []
    sent = compared = 0
    began = used = 0.0
    seconds = []
    processor = []
    last = {}


class Counted(MPI.Intracomm):
    def Split(self, *arguments):
        return Counted(super().Split(*arguments))

    def Allreduce(self, *arguments):
        State.compared += 1
        return super().Allreduce(*arguments)

    def Iallreduce(self, *arguments):
        State.compared += 1
        return super().Iallreduce(*arguments)

    def _gather(self, sent):
        State.sent += sent.nbytes * (self.Get_size() - 1)

    def Allgather(self, sent, received):
        self._gather(sent)
        return super().Allgather(sent, received)

    def Iallgather(self, sent, received):
        self._gather(sent)
        return super().Iallgather(sent, received)

    def Allgatherv(self, sent, received):
        self._gather(sent)
        return super().Allgatherv(sent, received)

    def Iallgatherv(self, sent, received):
        self._gather(sent)
        return super().Iallgatherv(sent, received)

    def _scatter(self, sent):
        State.sent += sum(sent[1]) - sent[1][self.Get_rank()]

    def Alltoallv(self, sent, received):
        self._scatter(sent)
        return super().Alltoallv(sent, received)

    def Ialltoallv(self, sent, received):
        self._scatter(sent)
        return super().Ialltoallv(sent, received)


class Counting(MpiCommunicator):
    def agree(self, call):
        State.calls.append([call.kind, list(call.shape), call.dtype])
        super().agree(call)


@hookimpl
def tenon_make_communicator(config):
    return Counting(Counted(MPI.COMM_WORLD))


@hookimpl
def tenon_step_begin(session, step):
    State.calls.clear()
    State.sent = State.compared = 0
    State.began, State.used = time.perf_counter(), time.process_time()


@hookimpl
def tenon_step_end(session, step, metrics):
    State.seconds.append(time.perf_counter() - State.began)
    State.processor.append(time.process_time() - State.used)
    State.last = {
        "calls": list(State.calls),
        "sent": State.sent,
        "compared": State.compared,
        "peak": memory.peak(),
    }


@hookimpl
def tenon_session_finish(session, error):
    counted = State.seconds[WARM:] or State.seconds
    found = {
        **State.last,
        "seconds": statistics.median(counted),
        "processor": statistics.median(State.processor),
    }
    with open(os.path.join(os.environ["COUNTED"], f"counted-{session.rank}.json"), "w") as file:
        json.dump(found, file)
