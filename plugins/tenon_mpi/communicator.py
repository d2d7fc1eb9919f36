"""Ranks that talk over MPI, inside a node through memory that they share.

Before each collective the ranks compare what they are about to do: equal calls go on, different ones raise on
all ranks. Inside a node that is a look at each other's line in shared memory, 1 µs; between nodes one small
all-reduce.

Which way (``ways.py``): ranks of one node share memory; one rank on each of several nodes sends messages;
several ranks on several nodes do both.
"""

from __future__ import annotations

import os
import secrets
from typing import Any, ClassVar, NoReturn

import numpy as np

from tenon.extend import Communicator, engine, errors
from tenon_mpi import point, survivors, traffic, ways
from tenon_mpi.library import load_mpi
from tenon_mpi.messages import Messages
from tenon_mpi.progress import Progress
from tenon_mpi.segments import unlink_segments
from tenon_mpi.shared import WHOLE_BYTES, SharedMemory
from tenon_mpi.window import Windows

NO_STEP = -1
Array = np.ndarray[Any, Any]


class MpiCommunicator(Communicator):
    """All ranks of ``MPI.COMM_WORLD``, or of the mpi4py communicator given; it is duplicated first.

    ``beside`` makes a second communicator of the same ranks, for a thread that works beside the first.
    ``nodes`` treats equal shares of the ranks as nodes.
    """

    name = "mpi"
    way: ClassVar[str | None] = None
    """"shared", "messages" or "hierarchical"; None chooses by where the ranks are."""

    def __init__(
        self, comm: Any = None, *, beside: MpiCommunicator | None = None, nodes: int | None = None
    ) -> None:
        self._mpi = load_mpi()
        self._comm = (self._mpi.COMM_WORLD if comm is None else comm).Dup()
        node = self._comm.Split_type(self._mpi.COMM_TYPE_SHARED)
        super().__init__(self._comm.Get_rank(), self._comm.Get_size(), node.Get_rank(), node.Get_size())
        patient = beside is not None
        self._calls = 0
        self._nodes = nodes
        self._place = -1
        self._closed = False
        self._progress: Progress | None = None
        self.survives = self.way in (None, "messages") and survivors.possible(self._mpi)
        speaking = survivors.Outliving(self._mpi, self._comm) if self.survives else self._comm
        self._messages = Messages(self._mpi, speaking, patient)
        self.node = self._number_node(node)
        unlink_segments(node)
        self._node = ways.simulate(self._comm, node, nodes)
        self._windows: Windows = Windows(self._mpi, self._node) if beside is None else beside._windows
        way = ways.choose(self._mpi, self._comm, self._node, "messages" if self.survives else self.way)
        self.overlaps = (
            self._node.Get_size() < self.size
            and self._mpi.Query_thread() == self._mpi.THREAD_MULTIPLE
            and not self.survives
        )
        self._reducing: ways.Reducing = self._messages
        self._moving: ways.Moving = self._messages
        self._compare = self._messages.compare
        self._memory: SharedMemory | None = None
        if way == "shared":
            self._memory = memory = ways.share(self._mpi, self._node, self._windows, patient)
            self._reducing = self._moving = memory
            self._compare = memory.meeting.compare
        elif way == "hierarchical":
            self._reducing = ways.layer(self._mpi, self._comm, self._node, self._windows, patient)
        token = np.frombuffer(secrets.token_bytes(8), np.uint8).copy()
        self._messages.broadcast(token, 0)
        self.job = token.tobytes().hex()

    @classmethod
    def traffic(
        cls, call: engine.Call, ranks: int, ranks_per_node: int, *, beside: bool = False
    ) -> engine.Traffic:
        """Of the way that ranks so spread would take."""
        sizes = np.full(ranks, ranks_per_node)
        sizes[ranks - ranks % ranks_per_node :] = ranks % ranks_per_node
        way = ways.choose_among(sizes, cls.way)
        return traffic.of_call(way, call, ranks, ranks_per_node, beside)

    def agree(self, call: engine.Call) -> None:
        """Compare digests and steps."""
        if self._closed:
            raise errors.CommunicatorError(
                f"{call.kind}: this communicator was closed. Call init_process_group first."
            )
        self._check(call)

    def _check(self, call: engine.Call) -> None:
        self._calls += 1
        place, self._place = self._place, -1
        if not self._compare(call.digest, NO_STEP if self.step is None else self.step, place):
            engine.settle(self._messages.all_gather_bytes(call.payload(self.step)), self._calls)

    def start_all_reduce(
        self, array: Array, op: str = engine.ReduceOp.SUM, *, name: str | None = None
    ) -> engine.Work:
        """Between nodes, in a thread beside; inside a node now, as overlapping never paid there."""
        if not self.overlaps:
            return self.all_reduce(array, op, array, name=name)
        if self._progress is None:
            self._progress = Progress(type(self)(self._comm, beside=self, nodes=self._nodes))
        return self._progress.start(array, op, name, self.step)

    def allocate(self, count: int, dtype: np.dtype[Any]) -> Array:
        """In a window, where reductions use shared memory."""
        if self._reducing is self._messages:
            return super().allocate(count, dtype)
        return self._windows.allocate(count, dtype)

    def expect_all_reduce(self, source: Array, in_place: bool) -> None:
        """Stage what is small; of what is larger, tell the others where it lies."""
        if self._memory is not None:
            if source.nbytes <= WHOLE_BYTES:
                self._memory.stage(source)
            elif in_place:
                self._place = self._windows.place(source)

    def perform_all_reduce(self, source: Array, target: Array, op: engine.ReduceOp) -> None:
        """In memory, by messages, or both."""
        self._reducing.all_reduce(source, target, op)

    def perform_broadcast(self, target: Array, root: int) -> None:
        """In memory or by messages."""
        self._moving.broadcast(target, root)

    def perform_all_gather(self, source: Array, target: Array) -> None:
        """In memory or by messages."""
        self._moving.all_gather(source, target)

    def perform_all_to_all(self, source: Array, target: Array) -> None:
        """In memory or by messages."""
        self._moving.all_to_all(source, target)

    def perform_reduce_scatter(self, source: Array, target: Array, op: engine.ReduceOp) -> None:
        """In memory or by messages."""
        self._moving.reduce_scatter(source, target, op)

    def perform_all_gather_bytes(self, payload: bytes) -> list[bytes]:
        """By messages."""
        return self._messages.all_gather_bytes(payload)

    def perform_send(self, source: Array, text: str, to: int, tag: int) -> engine.Work:
        """A message of MPI."""
        return point.send(self._comm, source, text, to, tag)

    def perform_receive(self, target: Array, text: str, source: int, tag: int) -> engine.Work:
        """A message of MPI."""
        return point.receive(self._comm, target, text, source, tag)

    def perform_split(self, color: int | None, key: int) -> MpiCommunicator | None:
        """``MPI_Comm_split``."""
        part = self._comm.Split(self._mpi.UNDEFINED if color is None else color, key)
        if color is None:
            return None
        made = type(self)(part)
        part.Free()
        return made

    def shrink(self) -> MpiCommunicator:
        """What is left of the ranks, as MPI finds out."""
        self._stop()
        left = survivors.shrink(self._comm)
        made = type(self)(left, nodes=self._nodes)
        left.Free()
        return made

    def close(self) -> None:
        """Agree that all ranks close, then free MPI's side."""
        if not self._closed:
            self.agree(engine.Call("destroy_process_group", "", (), "", None))
            self._stop()
            self._comm.Free()

    def finish(self) -> None:
        """Meet the other ranks in place of a collective, so that one still inside a call learns of it."""
        if not self._closed and not self._mpi.Is_finalized():
            self._stop()
            self._check(engine.FINISH)

    def claim_report(self) -> bool:
        """What the ranks of this node note in their shared memory, which outlives the one that reported."""
        if self._memory is None or self._mpi.Is_finalized():
            return True
        return self._memory.meeting.claim_report()

    def kill(self, code: int) -> NoReturn:
        """``MPI_Abort``: the launcher ends the other processes at once."""
        if not self._mpi.Is_finalized():
            self._mpi.COMM_WORLD.Abort(code)
        os._exit(code)

    def _stop(self) -> None:
        self._closed = True
        if self._progress is not None:
            self._progress.stop()

    def _number_node(self, node: Any) -> int:
        """This rank's host, counted in order of each host's first rank."""
        first = np.array([self.rank], np.int64)
        node.Bcast(first, 0)
        firsts = np.empty(self.size, np.int64)
        self._comm.Allgather(first, firsts)
        return int(np.searchsorted(np.unique(firsts), first[0]))


class SharedCommunicator(MpiCommunicator):
    """Shared memory, or an error where the ranks are on several nodes."""

    name = "mpi-shared"
    way = "shared"


class MessageCommunicator(MpiCommunicator):
    """Messages only, also inside a node."""

    name = "mpi-messages"
    way = "messages"


class HierarchicalCommunicator(MpiCommunicator):
    """Shared memory inside nodes and messages between them."""

    name = "mpi-hierarchical"
    way = "hierarchical"


__all__ = ["HierarchicalCommunicator", "MessageCommunicator", "MpiCommunicator", "SharedCommunicator"]
