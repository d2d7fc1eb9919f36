"""Ranks as threads of one process, to test distributed code without MPI.

Slow and exact: every rank reads the arrays of all others and reduces them in rank order. When a rank fails,
the others raise ``RankFailedError`` instead of waiting for it.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias, TypeVar

import numpy as np

from tenon.distributed.communication.calls import Call, Work, check_message, format_ranks, settle
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.reduction import ReduceOp, reduce_into
from tenon.distributed.communication.world import use_communicator
from tenon.errors import CommunicatorError, RankFailedError

Result = TypeVar("Result")
Value = TypeVar("Value")
#: A message with its description; None if a rank has failed.
Message: TypeAlias = tuple[str, np.ndarray] | None


class Mailbox:
    """Messages on their way from one rank to another, and the receives that wait for them, in order."""

    def __init__(self) -> None:
        self.messages: queue.Queue[Message] = queue.Queue()
        self.posted: deque[_PendingReceive] = deque()


class ThreadedWorld:
    """Shared state of ``size`` threads: a reusable barrier, exchange slots and mailboxes."""

    def __init__(self, size: int, timeout: float = 20.0) -> None:
        if size < 1:
            raise CommunicatorError(f"a world needs at least one rank, got size {size}.")
        self.size = size
        self.timeout = timeout
        self.slots: list[Any] = [None] * size  # of the type that the ranks exchange at the moment
        self.failure: tuple[int, BaseException] | None = None
        self.waiting: dict[int, str] = {}
        self._mail: dict[tuple[int, int, int], Mailbox] = {}
        self.groups: list[ThreadedWorld] = []
        self._condition = threading.Condition()
        self._arrived = 0
        self._generation = 0
        self._stalled = False

    def exchange(self, rank: int, value: Value) -> list[Value]:
        """Return the values of all ranks, in rank order."""
        self.slots[rank] = value
        self._wait(rank)
        values = list(self.slots)
        self._wait(rank)
        return values

    def mailbox(self, address: tuple[int, int, int]) -> Mailbox:
        """The messages of one sender, receiver and tag; both may ask for it first, at the same time."""
        with self._condition:
            mailbox = self._mail.setdefault(address, Mailbox())
            if self.failure is not None:
                mailbox.messages.put(None)
            return mailbox

    def fail(self, rank: int, error: BaseException) -> None:
        """Make every rank raise ``RankFailedError`` that waits now or later."""
        with self._condition:
            if self.failure is None:
                self.failure = (rank, error)
            self._condition.notify_all()
            for mailbox in self._mail.values():
                mailbox.messages.put(None)
        for group in self.groups:
            group.fail(rank, error)

    def _wait(self, rank: int) -> None:
        """Barrier: return when all ranks have arrived, even if one of them fails right after."""
        with self._condition:
            generation = self._generation
            self._arrived += 1
            if self._arrived == self.size:
                self._arrived = 0
                self._generation += 1
                self._condition.notify_all()
                return
            self._condition.wait_for(lambda: self._generation != generation or self._broken(), self.timeout)
            if self._generation == generation:
                self._stalled = True
                self._condition.notify_all()
                raise self.error_of(rank)

    def _broken(self) -> bool:
        """Whether a rank has failed or has not arrived in time, so that no barrier can be passed any more."""
        return self._stalled or self.failure is not None

    def error_of(self, rank: int) -> RankFailedError:
        """Return the error of a rank whose wait has failed."""
        if self.failure is not None:
            failed, error = self.failure
            return RankFailedError(
                f"rank {failed} failed with {type(error).__name__}: {error}. "
                f"Rank {rank} cannot continue without it."
            )
        present = sorted(self.waiting)
        missing = [other for other in range(self.size) if other not in self.waiting]
        return RankFailedError(
            f"{format_ranks(missing or present)} did not reach {self.waiting.get(rank)} within "
            f"{self.timeout:g} s, where {format_ranks(present)} wait. "
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
            settle([other.payload(step) for other, step in calls], self._calls, self.ranks, self.orders)

    def perform_all_reduce(self, source: np.ndarray, target: np.ndarray, op: ReduceOp) -> None:
        """Reduce copies, as ``target`` may be the memory that another rank still reads."""
        reduce_into(self.world.exchange(self.rank, source.copy()), op, target)

    def perform_broadcast(self, target: np.ndarray, root: int) -> None:
        """Copy from the root's array."""
        sent = self.world.exchange(self.rank, target.copy() if self.rank == root else target)
        np.copyto(target, sent[root])

    def perform_all_gather(self, source: np.ndarray, target: np.ndarray) -> None:
        """Stack in rank order."""
        for row, sent in zip(target, self.world.exchange(self.rank, source.copy()), strict=True):
            np.copyto(row, sent)

    def perform_reduce_scatter(self, source: np.ndarray, target: np.ndarray, op: ReduceOp) -> None:
        """Reduce this rank's rows of all ranks."""
        sent = self.world.exchange(self.rank, source.copy())
        reduce_into([array[self.rank] for array in sent], op, target)

    def perform_all_gather_bytes(self, payload: bytes) -> list[bytes]:
        """The payloads in rank order."""
        return [bytes(sent) for sent in self.world.exchange(self.rank, payload)]

    def perform_send(self, source: np.ndarray, text: str, to: int, tag: int) -> Work:
        """Put a copy into the receiver's mailbox."""
        self.world.mailbox((self.rank, to, tag)).messages.put((text, source.copy()))
        return Work(source)

    def perform_receive(self, target: np.ndarray, text: str, source: int, tag: int) -> Work:
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
        assert world is not None  # the lowest rank has created it
        self.world.groups.append(world)
        return ThreadedCommunicator(world, order.index(self.rank))

    def abort(self, error: BaseException) -> NoReturn:
        """Make all ranks raise."""
        self.world.fail(self.rank, error)
        raise error


class _PendingReceive(Work):
    """The handle of a receive from another thread.

    Messages go to the receives of an address in the order in which these were posted, whichever is waited for
    first, as in MPI.
    """

    __slots__ = ("_address", "_arrived", "_done", "_mailbox", "_text", "_world")

    def __init__(
        self, world: ThreadedWorld, address: tuple[int, int, int], target: np.ndarray, text: str
    ) -> None:
        super().__init__(target)
        self._mailbox = world.mailbox(address)
        self._mailbox.posted.append(self)
        self._arrived: Message = None
        self._done = False
        self._address, self._text, self._world = address, text, world

    def wait(self, timeout: object = None) -> np.ndarray:
        """Block until the array has arrived; RankFailedError after the timeout, or if a rank fails."""
        while not self._done and self._arrived is None:
            message = self._next_message()
            self._mailbox.posted.popleft()._arrived = message
        if self._arrived is not None:
            text, sent = self._arrived
            check_message(self._text, text, self._address[0])
            np.copyto(self._result, sent)
            self._done, self._arrived = True, None
        return self._result

    def _next_message(self) -> Message:
        source, to, tag = self._address
        try:
            message = self._mailbox.messages.get(timeout=self._world.timeout)
        except queue.Empty:
            raise RankFailedError(
                f"rank {source} sent nothing with tag {tag} to rank {to} within"
                f" {self._world.timeout:g} s. Look for a send that is skipped."
            ) from None
        if message is None:
            self._mailbox.messages.put(None)
            raise self._world.error_of(to)
        return message

    def is_completed(self) -> bool:
        """Whether the array has been sent."""
        if self._done or self._arrived is not None:
            return True
        return self._mailbox.posted.index(self) < self._mailbox.messages.qsize()


def run_ranks(
    size: int, function: Callable[..., Result], *args: object, timeout: float = 20.0
) -> list[Result]:
    """Call ``function(communicator, *args)`` on ``size`` ranks at once; return their results in rank order.

    Inside, ``tenon.distributed`` uses that rank's communicator. The first rank's error is raised.

    >>> run_ranks(3, lambda communicator: int(communicator.all_reduce(communicator.rank).wait()))
    [3, 3, 3]
    """
    world = ThreadedWorld(size, timeout)
    results: dict[int, Result] = {}
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
    return [results[rank] for rank in range(size)]


def _run_rank(
    world: ThreadedWorld,
    rank: int,
    function: Callable[..., Result],
    args: Sequence[object],
    results: dict[int, Result],
) -> None:
    """The body of a rank's thread: store the result of ``function`` in ``results``, or fail the world."""
    communicator = ThreadedCommunicator(world, rank)
    try:
        with use_communicator(communicator):
            results[rank] = function(communicator, *args)
        communicator.finish()
    except BaseException as error:
        world.fail(rank, error)
