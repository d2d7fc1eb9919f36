"""Collectives as MPI messages, in pieces of at most 2 MiB.

A large single call is slow (its temporaries are page-faulted anew); pieces stay in cache. Reductions do not
use ``MPI_Allreduce``: pieces are exchanged, combined as a tree over the ranks, and gathered, so that the bits
do not depend on the algorithm that MPI would choose, and 16-bit floats travel as 16 bits.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from tenon.extend import engine
from tenon_mpi.library import Mpi, MpiComm

PIECE_BYTES = 2 << 20
WHOLE_BYTES = 16 << 10
"""Up to this size every rank gathers all rows and reduces them redundantly: one call in place of two."""
POLL_SECONDS = 1e-3
"""Seconds that a background thread sleeps between rounds of polling."""
POLLS = 64
"""``MPI_Test`` calls between two sleeps. Each progresses some 100 KB: with one a sleep, half of a 2 Gbit line
was idle."""
IN_FLIGHT = 2
"""Pieces in flight at a time, so that the network is not idle while one is reduced."""


class Messages:
    """Collectives over the mpi4py communicator ``comm``; with ``background`` they sleep while they wait.

    ``clock`` counts how long ``compare`` waits for the other ranks.
    """

    def __init__(
        self, mpi: Mpi, comm: MpiComm, background: bool = False, clock: engine.Clock | None = None
    ) -> None:
        self._mpi = mpi
        self._comm = comm
        self._background = background
        self._clock = engine.Clock() if clock is None else clock
        self._rank, self._size = comm.Get_rank(), comm.Get_size()
        # Reused: fresh buffers would be page-faulted at every call.
        self._received = [np.empty(0, np.uint8) for _ in range(IN_FLIGHT)]
        self._proposed, self._agreed = np.zeros(2, np.int64), np.zeros(2, np.int64)

    def compare(self, word: int, position: int = -1) -> bool:
        """Wait for all ranks; return whether all of them passed the same word. ``position`` is ignored.

        One all-reduce gives the maximum, and the minimum as the maximum of the negative.
        """
        proposed, agreed = self._proposed, self._agreed
        proposed[0], proposed[1] = word, -word
        with self._clock.waiting():
            self._call("Allreduce", proposed, agreed, self._mpi.MAX)
        return bool(agreed[0] == -agreed[1])

    def all_reduce(self, source: np.ndarray, target: np.ndarray, op: engine.ReduceOp) -> None:
        """Reduce flat ``source`` into flat ``target``, which may be the same memory."""
        in_flight: deque[Iterator[None]] = deque()
        for number, (start, stop) in enumerate(pieces(source.size, source.dtype.itemsize)):
            if len(in_flight) == IN_FLIGHT:
                _finish(in_flight.popleft())
            in_flight.append(
                self._reduce_piece(source[start:stop], target[start:stop], op, number % IN_FLIGHT)
            )
            next(in_flight[-1])
        for piece in in_flight:
            _finish(piece)

    def broadcast(self, target: np.ndarray, root: int) -> None:
        """Copy the bytes of the root's ``target`` into that of every rank."""
        data = target.view(np.uint8)
        for start, stop in pieces(data.size, 1):
            self._call("Bcast", data[start:stop], root)

    def all_gather(self, source: np.ndarray, target: np.ndarray) -> None:
        """Copy ``source`` of rank r into row r; rows of more than a piece go through a small buffer."""
        sent = source.view(np.uint8)
        rows = target.reshape(-1).view(np.uint8).reshape(self._size, sent.size)
        for start, stop in pieces(sent.size, 1):
            whole = stop - start == sent.size
            buffer = rows if whole else np.empty((self._size, stop - start), np.uint8)
            self._call("Allgather", sent[start:stop], buffer)
            if not whole:
                rows[:, start:stop] = buffer

    def all_to_all(self, source: np.ndarray, target: np.ndarray) -> None:
        """Send row r of ``source`` to rank r, a block of columns of all rows at a time."""
        for start, stop in pieces(source.shape[1], source.dtype.itemsize * self._size):
            sent = np.ascontiguousarray(source[:, start:stop])
            received = np.empty_like(sent)
            self._call("Alltoall", sent.view(np.uint8), received.view(np.uint8))
            target[:, start:stop] = received

    def reduce_scatter(self, source: np.ndarray, target: np.ndarray, op: engine.ReduceOp) -> None:
        """Send row r to rank r; reduce the received rows into ``target``."""
        for start, stop in pieces(target.size, source.dtype.itemsize * self._size):
            sent = np.ascontiguousarray(source[:, start:stop])
            received = np.empty_like(sent)
            self._call("Alltoall", sent.view(np.uint8), received.view(np.uint8))
            engine.reduce_into(list(received), op, target[start:stop])

    def all_gather_bytes(self, payload: bytes) -> list[bytes]:
        """The payloads of all ranks in rank order: lengths are gathered first, then bytes."""
        lengths = np.empty(self._size, np.int64)
        self._call("Allgather", np.array([len(payload)], np.int64), lengths)
        gathered = np.empty(int(lengths.sum()), np.uint8)
        counts = [int(count) for count in lengths]
        self._call("Allgatherv", np.frombuffer(payload, np.uint8), [gathered, counts, self._mpi.BYTE])
        ends = np.cumsum(lengths)
        return [gathered[end - count : end].tobytes() for end, count in zip(ends, counts, strict=True)]

    def _reduce_piece(
        self, source: np.ndarray, target: np.ndarray, op: engine.ReduceOp, slot: int
    ) -> Iterator[None]:
        """Exchange and combine one piece; yields once, after the first exchange was started.

        Small pieces, and all of two ranks: an all-gather, then each rank reduces every row. Others:
        reduce-scatter, then all-gather.
        """
        size, rank = self._size, self._rank
        if size == 2 or source.nbytes <= WHOLE_BYTES:
            rows = self._buffer(slot, size, source)
            wait = self._start("Allgather", source.view(np.uint8), rows.view(np.uint8))
            yield
            wait()
            engine.reduce_into(list(rows), op, target)
            return
        bounds = [source.size * index // size for index in range(size + 1)]
        item = source.dtype.itemsize
        counts = [(stop - start) * item for start, stop in itertools.pairwise(bounds)]
        starts = [bound * item for bound in bounds[:-1]]
        own = slice(bounds[rank], bounds[rank + 1])
        rows = self._buffer(slot, size, source[own])
        count, byte = counts[rank], self._mpi.BYTE
        offsets = [index * count for index in range(size)]
        wait = self._start(
            "Alltoallv",
            [source.view(np.uint8), counts, starts, byte],
            [rows.view(np.uint8), [count] * size, offsets, byte],
        )
        yield
        wait()
        engine.reduce_into(list(rows), op, rows[0])
        self._call("Allgatherv", rows[0].view(np.uint8), [target.view(np.uint8), counts, starts, byte])

    def _buffer(self, slot: int, size: int, like: np.ndarray) -> np.ndarray:
        """``size`` rows of the dtype and length of ``like``, in reused receive buffer number ``slot``."""
        needed = size * like.nbytes
        if needed > self._received[slot].size:
            self._received[slot] = np.empty(needed, np.uint8)
        return self._received[slot][:needed].view(like.dtype).reshape(size, like.size)

    def _call(self, name: str, *arguments: object) -> None:
        self._start(name, *arguments)()

    def _start(self, name: str, *arguments: object) -> Callable[[], None]:
        """Start a collective and return a function that waits for it.

        Without ``background`` the call blocks, and there is nothing left to wait for.
        """
        if not self._background:
            getattr(self._comm, name)(*arguments)
            return _completed
        test = getattr(self._comm, "I" + name.lower())(*arguments).Test

        def wait() -> None:
            while not any(test() for _ in range(POLLS)):
                time.sleep(POLL_SECONDS)

        return wait


def _completed() -> None:
    """Wait for a call that has completed."""


def _finish(piece: Iterator[None]) -> None:
    for _ in piece:
        pass


def pieces(count: int, itemsize: int, size: int = PIECE_BYTES) -> Iterator[tuple[int, int]]:
    """Bounds of pieces of at most ``size`` bytes, at least one element each."""
    length = max(1, size // itemsize)
    for start in range(0, count, length):
        yield start, min(count, start + length)


__all__ = ["Messages", "pieces"]
