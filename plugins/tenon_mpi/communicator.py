"""Communicators over MPI, with shared memory inside a node.

Before each collective the ranks compare the call: if all make the same one it proceeds, otherwise it raises
on all ranks. Inside a node the comparison reads the other ranks' lines in shared memory, 1 µs
(``barrier.py``); between nodes it is one small all-reduce.

The transport (``transports.py``): ranks of one node use shared memory; one rank on each of several nodes
sends messages; several ranks on several nodes use both.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from typing import ClassVar, NoReturn

import numpy as np

from tenon.extend import Communicator, engine, errors
from tenon_mpi import fault_tolerance, point_to_point, traffic, transports
from tenon_mpi.library import MpiComm, load_mpi
from tenon_mpi.messages import Messages
from tenon_mpi.progress import Progress
from tenon_mpi.segments import unlink_segments
from tenon_mpi.shared import WHOLE_BYTES, SharedMemory
from tenon_mpi.window import Windows

STEP_FACTOR = 0x9E3779B97F4A7C15
"""Spreads the number of a step over the 63 bits of a digest: 2^64 / the golden ratio."""
DIGEST_BITS = (1 << 63) - 1
NOTHING = np.empty(0, np.uint8)
"""The result of calls that write into the caller's arrays."""


class MpiCommunicator(Communicator):
    """All ranks of ``MPI.COMM_WORLD``, or of the mpi4py communicator given; it is duplicated first.

    ``beside`` makes a second communicator of the same ranks, for a background thread that overlaps its calls
    with those of the first. ``nodes`` treats equal shares of the ranks as simulated nodes. ``clock`` counts
    its waits: for a group the clock of what it was made of.
    """

    name = "mpi"
    transport: ClassVar[str | None] = None
    """"shared", "messages" or "hierarchical"; None chooses by where the ranks are."""

    def __init__(
        self, comm: MpiComm = None, *, beside: MpiCommunicator | None = None, nodes: int | None = None,
        clock: engine.Clock | None = None,
    ) -> None:  # fmt: skip
        self._mpi = load_mpi()
        self._comm = (self._mpi.COMM_WORLD if comm is None else comm).Dup()
        node = self._comm.Split_type(self._mpi.COMM_TYPE_SHARED)
        super().__init__(self._comm.Get_rank(), self._comm.Get_size(), node.Get_rank(), node.Get_size())
        background = beside is not None
        self.kept[engine.Clock] = clock = engine.Clock() if clock is None else clock
        self._calls = 0
        self._nodes = nodes
        self._position = -1
        self._closed = False
        self._progress: Progress | None = None
        self.survives = self.transport in (None, "messages") and fault_tolerance.available(self._mpi)
        messaging = fault_tolerance.FaultTolerantComm(self._mpi, self._comm) if self.survives else self._comm
        self._messages = Messages(self._mpi, messaging, background, clock)
        self.node = self._number_node(node)
        unlink_segments(node)
        self._node, simulated = transports.simulate(self._comm, node, nodes)
        if simulated is not None:
            self.kept["simulated node"] = simulated
        self._windows: Windows = Windows(self._mpi, self._node) if beside is None else beside._windows
        transport = transports.choose(
            self._mpi, self._comm, self._node, "messages" if self.survives else self.transport
        )
        self.overlaps = (
            self._node.Get_size() < self.size
            and self._mpi.Query_thread() == self._mpi.THREAD_MULTIPLE
            and not self.survives
        )
        self._reducer: transports.Reducer = self._messages
        self._mover: transports.Mover = self._messages
        self._compare = self._messages.compare
        self._memory: SharedMemory | None = None
        self._agreements = engine.Agreements()
        if transport == "shared":
            self._memory = memory = transports.shared(self._mpi, self._node, self._windows, background, clock)
            self._reducer = self._mover = memory
            self._compare = memory.barrier.compare
        elif transport == "hierarchical":
            self._reducer = transports.hierarchical(
                self._mpi, self._comm, self._node, self._windows, background
            )
        token = np.frombuffer(secrets.token_bytes(8), np.uint8).copy()
        self._messages.broadcast(token, 0)
        self.job = token.tobytes().hex()

    @classmethod
    def traffic(
        cls, call: engine.Call, ranks: int, ranks_per_node: int, *, beside: bool = False
    ) -> engine.Traffic:
        """The traffic of ``call`` on the transport that ``choose`` selects for this placement of ranks."""
        sizes = np.full(ranks, ranks_per_node)
        sizes[ranks - ranks % ranks_per_node :] = ranks % ranks_per_node
        transport = transports.choose_among(sizes, cls.transport)
        return traffic.of_call(transport, call, ranks, ranks_per_node, beside)

    def agree(self, call: engine.Call) -> None:
        """Compare the digest of ``call`` and the step with the other ranks'; raise if they differ."""
        if self._closed:
            raise errors.CommunicatorError(
                f"{call.kind}: this communicator was closed. Call init_process_group first."
            )
        self._calls += 1
        position, self._position = self._position, -1
        word = call.digest
        if self.step is not None:
            word ^= self.step * STEP_FACTOR & DIGEST_BITS
        if not self._compare(word, position):
            self._settle(call, word ^ call.digest, position)

    def _settle(self, call: engine.Call, step: int, position: int) -> None:
        """Raise unless ``call`` may be one with those of the other ranks; words include ``step``."""
        words: list[int] = []
        if self._memory is not None:
            barrier = self._memory.barrier
            words = [word ^ step for word in barrier.words()]
            if self._agreements.knows(words):
                # In shared memory another word takes 2 us, where texts in messages take up to some ms.
                barrier.compare(call.within, position)
                if self._agreements.are_in_order(words, barrier.words(), self._calls, self.orders):
                    return
        payloads = self._messages.all_gather_bytes(call.payload(self.step))
        engine.settle(payloads, self._calls, self.ranks, self.orders)
        if words:
            self._agreements.learn(words, payloads)

    def start_all_reduce(
        self, array: np.ndarray, op: str = engine.ReduceOp.SUM, *, name: str | None = None
    ) -> engine.Work:
        """Start an all-reduce: in the progress thread between nodes; inside a node it completes here.

        Overlap never paid off inside a node.
        """
        if not self.overlaps:
            return self.all_reduce(array, op, array, name=name)
        return self._start(array, lambda beside: beside.all_reduce(array, op, array, name=name))

    def start_all_gather_several(
        self, arrays: engine.Arrays, outs: engine.Arrays, *, name: str | None = None
    ) -> engine.Work:
        """Start gathering, as ``start_all_reduce`` starts a reduction."""
        if not self.overlaps:
            return self.all_gather_several(arrays, outs, name=name)
        return self._start(NOTHING, lambda beside: beside.all_gather_several(arrays, outs, name=name))

    def start_reduce_scatter_several(
        self,
        arrays: engine.Arrays,
        outs: engine.Arrays,
        op: str = engine.ReduceOp.SUM,
        *,
        name: str | None = None,
    ) -> engine.Work:
        """Start a reduce-scatter, as ``start_all_reduce`` starts a reduction."""
        if not self.overlaps:
            return self.reduce_scatter_several(arrays, outs, op, name=name)
        return self._start(NOTHING, lambda beside: beside.reduce_scatter_several(arrays, outs, op, name=name))

    def _start(self, result: np.ndarray, perform: Callable[[Communicator], object]) -> engine.Work:
        """Queue ``perform`` for the progress thread, which calls it with a communicator of its own."""
        if self._progress is None:
            self._progress = Progress(type(self)(self._comm, beside=self, nodes=self._nodes))
        return self._progress.start(result, perform, self.kept[engine.Clock], self.step)

    def allocate(self, count: int, dtype: np.dtype) -> np.ndarray:
        """Allocate in a shared window if reductions use shared memory and there is room, else privately."""
        found = None if self._reducer is self._messages else self._windows.allocate(count, dtype)
        return super().allocate(count, dtype) if found is None else found

    def common_memory(self, size: int, *, name: str | None = None) -> np.ndarray | None:
        """In a shared window, if all ranks are on one node."""
        if self._memory is None:
            return None
        self.agree(engine.Call("all_gather", "memory", (size,), "bytes", name))
        return self._windows.common(size, self._memory.barrier)

    def readable_memory(self, size: int, *, name: str | None = None) -> np.ndarray | None:
        """In a shared window, if all ranks are on one node."""
        if self._memory is None:
            return None
        self.agree(engine.Call("reduce_scatter", "memory", (size,), "bytes", name))
        return self._windows.allocate(size, np.dtype(np.uint8))

    def expect_several(self, arrays: engine.Arrays, *, gathered: bool) -> None:
        """Publish the position of ``arrays`` in a common window, or of those to reduce in one of all rows."""
        if self._memory is not None:
            self._position = self._windows.position_of_several(arrays, common=gathered)

    def expect(self, source: np.ndarray, in_place: bool = False) -> None:
        """Before the comparison: stage a small array, or publish the position of one in a shared window."""
        if self._memory is not None:
            if source.nbytes <= WHOLE_BYTES:
                self._memory.stage(source)
            elif in_place:
                self._position = self._windows.position_of(source)

    def perform_all_reduce(self, source: np.ndarray, target: np.ndarray, op: engine.ReduceOp) -> None:
        """All-reduce through shared memory, messages, or both."""
        self._reducer.all_reduce(source, target, op)

    def perform_broadcast(self, target: np.ndarray, root: int) -> None:
        """Broadcast through shared memory or by messages."""
        self._mover.broadcast(target, root)

    def perform_all_gather(self, source: np.ndarray, target: np.ndarray) -> None:
        """All-gather through shared memory or by messages."""
        self._mover.all_gather(source, target)

    def perform_all_to_all(self, source: np.ndarray, target: np.ndarray) -> None:
        """All-to-all through shared memory or by messages."""
        self._mover.all_to_all(source, target)

    def perform_reduce_scatter(self, source: np.ndarray, target: np.ndarray, op: engine.ReduceOp) -> None:
        """Reduce-scatter through shared memory or by messages."""
        self._mover.reduce_scatter(source, target, op)

    def perform_all_gather_several(self, sources: engine.Arrays, targets: engine.Arrays) -> None:
        """Gather through shared memory, without packing; else as one message."""
        if self._mover is self._memory:
            self._memory.all_gather_several(sources, targets)
        else:
            super().perform_all_gather_several(sources, targets)

    def perform_reduce_scatter_several(
        self, sources: engine.Arrays, targets: engine.Arrays, op: engine.ReduceOp
    ) -> None:
        """Reduce through shared memory, without packing; else as one message."""
        if self._mover is self._memory:
            self._memory.reduce_scatter_several(sources, targets, op)
        else:
            super().perform_reduce_scatter_several(sources, targets, op)

    def perform_all_gather_bytes(self, payload: bytes) -> list[bytes]:
        """Gather by messages on every transport."""
        return self._messages.all_gather_bytes(payload)

    def perform_send(self, source: np.ndarray, text: str, to: int, tag: int) -> engine.Work:
        """Start a nonblocking send (``MPI_Isend``)."""
        return point_to_point.send(self.kept[engine.Clock], self._comm, source, text, to, tag)

    def perform_receive(self, target: np.ndarray, text: str, source: int, tag: int) -> engine.Work:
        """Start a nonblocking receive (``MPI_Irecv``)."""
        return point_to_point.receive(self.kept[engine.Clock], self._comm, target, text, source, tag)

    def perform_split(self, color: int | None, key: int) -> MpiCommunicator | None:
        """``MPI_Comm_split``."""
        part = self._comm.Split(self._mpi.UNDEFINED if color is None else color, key)
        if color is None:
            return None
        group = type(self)(part, clock=self.kept[engine.Clock])
        part.Free()
        return group

    def beside(self) -> MpiCommunicator | None:
        """A duplicate that sleeps while it waits, if this MPI can be called from several threads."""
        if self._mpi.Query_thread() != self._mpi.THREAD_MULTIPLE:
            return None
        self.agree(engine.Call("new_group", "beside", (), "", None))
        return type(self)(self._comm, beside=self, nodes=self._nodes)

    def shrink(self) -> MpiCommunicator:
        """A communicator of the surviving ranks (``MPIX_Comm_shrink``)."""
        self._stop()
        survivors = fault_tolerance.shrink(self._comm)
        shrunk = type(self)(survivors, nodes=self._nodes)
        survivors.Free()
        return shrunk

    def close(self) -> None:
        """Agree with all ranks to close, then free the MPI communicator."""
        if not self._closed:
            self.agree(engine.Call("destroy_process_group", "", (), "", None))
            self._stop()
            self._comm.Free()

    def finish(self) -> None:
        """Join the comparison of calls one last time: ranks still inside a collective learn of the end."""
        if not self._closed and not self._mpi.Is_finalized():
            if self._progress is not None:
                self._progress.stop()
            try:
                self.agree(engine.FINISH)
            finally:
                self._closed = True

    def claim_report(self) -> bool:
        """Whether this rank is the first of its node to report, as noted in shared memory.

        The note outlives the process that made it.
        """
        if self._memory is None or self._mpi.Is_finalized():
            return True
        return self._memory.barrier.claim_report()

    def kill(self, code: int) -> NoReturn:
        """``MPI_Abort``: the launcher ends the other processes at once."""
        if not self._mpi.Is_finalized():
            self._mpi.COMM_WORLD.Abort(code)
        os._exit(code)

    def _stop(self) -> None:
        self._closed = True
        if self._progress is not None:
            self._progress.stop()

    def _number_node(self, node: MpiComm) -> int:
        """The index of this rank's host, in order of each host's first rank."""
        first = np.array([self.rank], np.int64)
        node.Bcast(first, 0)
        firsts = np.empty(self.size, np.int64)
        self._comm.Allgather(first, firsts)
        return int(np.searchsorted(np.unique(firsts), first[0]))


class SharedCommunicator(MpiCommunicator):
    """Shared memory only; raises if the ranks are on several nodes."""

    name = "mpi-shared"
    transport = "shared"


class MessageCommunicator(MpiCommunicator):
    """Messages only, also inside a node."""

    name = "mpi-messages"
    transport = "messages"


class HierarchicalCommunicator(MpiCommunicator):
    """Shared memory inside nodes and messages between them."""

    name = "mpi-hierarchical"
    transport = "hierarchical"


__all__ = ["HierarchicalCommunicator", "MessageCommunicator", "MpiCommunicator", "SharedCommunicator"]
