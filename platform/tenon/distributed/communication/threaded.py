"""Ranks as threads of one process, to test distributed code without MPI.

Slow and exact: every rank sees the arrays of all others and reduces them in rank order. When a rank fails the
others are notified and raise ``RankFailedError`` instead of waiting.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from tenon.distributed.communication.calls import Call, Work, check_message, format_ranks, settle
from tenon.distributed.communication.communicator import Array, Communicator
from tenon.distributed.communication.reduction import ReduceOp, reduce_into
from tenon.distributed.communication.world import use_communicator
from tenon.errors import CommunicatorError, RankFailedError

Result = TypeVar("Result")


class ThreadedWorld:
    """Shared state of ``size`` threads: a reusable barrier, exchange slots and mailboxes."""

    def __init__(self, size: int, timeout: float = 20.0) -> None:
        if size < 1:
            raise CommunicatorError(f"a world needs at least one rank, got size {size}.")
        self.size = size
        self.timeout = timeout
        self.slots: list[Any] = [None] * size
        self.failure: tuple[int, BaseException] | None = None
        self.waiting: dict[int, str] = {}
        self.mail: dict[tuple[int, int, int], queue.Queue[tuple[str, Array]]] = defaultdict(queue.Queue)
        self.groups: list[ThreadedWorld] = []
        self._condition = threading.Condition()
        self._arrived = 0
        self._generation = 0
        self._stalled = False

    def exchange(self, rank: int, value: Any) -> list[Any]:
        """Gather the values of all ranks, in rank order."""
        self.slots[rank] = value
        self._wait(rank)
        values = list(self.slots)
        self._wait(rank)
        return values

    def fail(self, rank: int, error: BaseException) -> None:
        """Make every rank raise that waits now or later."""
        with self._condition:
            if self.failure is None:
                self.failure = (rank, error)
            self._condition.notify_all()
        for group in self.groups:
            group.fail(rank, error)

    def _wait(self, rank: int) -> None:
        """Barrier: return once all ranks have arrived, even if one of them fails right after."""
        with self._condition:
            generation = self._generation
            self._arrived += 1
            if self._arrived == self.size:
                self._arrived = 0
                self._generation += 1
                self._condition.notify_all()
                return
            self._condition.wait_for(lambda: self._generation != generation or self._over(), self.timeout)
            if self._generation == generation:
                self._stalled = True
                self._condition.notify_all()
                raise self._broken(rank)

    def _over(self) -> bool:
        return self._stalled or self.failure is not None

    def _broken(self, rank: int) -> RankFailedError:
        if self.failure is not None:
            failed, error = self.failure
            return RankFailedError(
                f"rank {failed} failed with {type(error).__name__}: {error}. "
                f"Rank {rank} cannot go on without it."
            )
        present = sorted(self.waiting)
        late = [other for other in range(self.size) if other not in self.waiting]
        return RankFailedError(
            f"{format_ranks(late or present)} did not come within {self.timeout:g} s to "
            f"{self.waiting.get(rank)}, where {format_ranks(present)} wait. "
            "Look for a collective that some ranks skip."
        )


class ThreadedCommunicator(Communicator):
    """The communicator of one thread of a ``ThreadedWorld``."""

    name = "threaded"

    def __init__(self, world: ThreadedWorld, rank: int) -> None:
        super().__init__(rank=rank, size=world.size)
        self.world = world
        self._calls = 0

    def agree(self, call: Call) -> None:
        """Compare the calls of all ranks."""
        self._calls += 1
        self.world.waiting[self.rank] = call.describe(self.step)
        calls = self.world.exchange(self.rank, (call, self.step))
        self.world.waiting.pop(self.rank, None)
        if any(other != calls[0] for other in calls):
            settle([other.payload(step) for other, step in calls], self._calls)

    def perform_all_reduce(self, source: Array, target: Array, op: ReduceOp) -> None:
        """Reduce copies, as ``target`` may be the memory that another rank still reads."""
        reduce_into(self.world.exchange(self.rank, source.copy()), op, target)

    def perform_broadcast(self, target: Array, root: int) -> None:
        """Copy from the root's array."""
        sent = self.world.exchange(self.rank, target.copy() if self.rank == root else None)
        np.copyto(target, sent[root])

    def perform_all_gather(self, source: Array, target: Array) -> None:
        """Stack in rank order."""
        for row, sent in zip(target, self.world.exchange(self.rank, source.copy()), strict=True):
            np.copyto(row, sent)

    def perform_reduce_scatter(self, source: Array, target: Array, op: ReduceOp) -> None:
        """Reduce this rank's rows of all ranks."""
        sent = self.world.exchange(self.rank, source.copy())
        reduce_into([array[self.rank] for array in sent], op, target)

    def perform_all_gather_bytes(self, payload: bytes) -> list[bytes]:
        """The payloads in rank order."""
        return [bytes(sent) for sent in self.world.exchange(self.rank, payload)]

    def perform_send(self, source: Array, text: str, to: int, tag: int) -> Work:
        """Put a copy into the receiver's mailbox."""
        self.world.mail[self.rank, to, tag].put((text, source.copy()))
        return Work(source)

    def perform_receive(self, target: Array, text: str, source: int, tag: int) -> Work:
        """Return a handle that takes the array from the mailbox on ``wait``."""
        return _PendingReceive(self.world, (source, self.rank, tag), target, text)

    def perform_split(self, color: int | None, key: int) -> ThreadedCommunicator | None:
        """Split by color; the lowest rank of each group creates its world."""
        requests = self.world.exchange(self.rank, (color, key))
        members = sorted((k, rank) for rank, (c, k) in enumerate(requests) if c == color and c is not None)
        order = [rank for _, rank in members]
        created = ThreadedWorld(len(order), self.world.timeout) if order[:1] == [self.rank] else None
        worlds = self.world.exchange(self.rank, created)
        if color is None:
            return None
        world = worlds[order[0]]
        self.world.groups.append(world)
        return ThreadedCommunicator(world, order.index(self.rank))

    def abort(self, error: BaseException) -> NoReturn:
        """Make all ranks raise."""
        self.world.fail(self.rank, error)
        raise error


class _PendingReceive(Work):
    """The handle of a receive from another thread."""

    __slots__ = ("_box", "_text", "_timeout", "_where")

    def __init__(self, world: ThreadedWorld, where: tuple[int, int, int], target: Array, text: str) -> None:
        super().__init__(target)
        self._box: queue.Queue[tuple[str, Array]] | None = world.mail[where]
        self._where, self._text, self._timeout = where, text, world.timeout

    def wait(self, timeout: Any = None) -> Array:
        """Block until the array has arrived; RankFailedError after the timeout."""
        if self._box is not None:
            try:
                text, sent = self._box.get(timeout=self._timeout)
            except queue.Empty:
                raise RankFailedError(
                    f"rank {self._where[0]} sent nothing with tag {self._where[2]} to rank {self._where[1]} "
                    f"within {self._timeout:g} s. Look for a send that is skipped."
                ) from None
            check_message(self._text, text, self._where[0])
            self._box = None
            np.copyto(self._result, sent)
        return self._result

    def is_completed(self) -> bool:
        """Whether the array has been sent."""
        return self._box is None or not self._box.empty()


def run_ranks(size: int, function: Callable[..., Result], *args: Any, timeout: float = 20.0) -> list[Result]:
    """Call ``function(communicator, *args)`` on ``size`` ranks at once; return their results in rank order.

    Inside, ``tenon.distributed`` uses that rank's communicator. The first rank's error is raised.

    >>> run_ranks(3, lambda communicator: int(communicator.all_reduce(communicator.rank).wait()))
    [3, 3, 3]
    """
    world = ThreadedWorld(size, timeout)
    results: list[Any] = [None] * size
    threads = [
        threading.Thread(
            target=contextvars.copy_context().run, args=(_run_rank, world, rank, function, args, results)
        )
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if world.failure is not None:
        raise world.failure[1]
    return results


def _run_rank(
    world: ThreadedWorld, rank: int, function: Callable[..., Any], args: Sequence[Any], results: list[Any]
) -> None:
    communicator = ThreadedCommunicator(world, rank)
    try:
        with use_communicator(communicator):
            results[rank] = function(communicator, *args)
        communicator.finish()
    except BaseException as error:
        world.fail(rank, error)
