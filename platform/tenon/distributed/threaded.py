"""Ranks as threads of one process: the whole distributed code runs in a test without MPI.

Slow and exact: every rank sees the arrays of all others and reduces them in rank order. A rank that fails
is told to the others, which raise ``RankFailedError`` instead of waiting.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from tenon.distributed.calls import Call, format_ranks, mismatch
from tenon.distributed.communicator import Array, Communicator
from tenon.distributed.reduction import ReduceOp, reduce_in_order
from tenon.distributed.world import use_communicator
from tenon.errors import CommunicatorError, RankFailedError

Result = TypeVar("Result")


class ThreadedWorld:
    """The meeting place of ``size`` threads."""

    def __init__(self, size: int, timeout: float = 20.0) -> None:
        if size < 1:
            raise CommunicatorError(f"a world needs at least one rank, got size {size}.")
        self.size = size
        self.timeout = timeout
        self.slots: list[Any] = [None] * size
        self.failure: tuple[int, BaseException] | None = None
        self.waiting: dict[int, str] = {}
        self._meeting = threading.Condition()
        self._arrived = 0
        self._generation = 0
        self._stalled = False

    def exchange(self, rank: int, value: Any) -> list[Any]:
        """The values of all ranks, once all have come."""
        self.slots[rank] = value
        self._wait(rank)
        values = list(self.slots)
        self._wait(rank)
        return values

    def fail(self, rank: int, error: BaseException) -> None:
        """Let every rank that waits, or comes later, raise."""
        with self._meeting:
            if self.failure is None:
                self.failure = (rank, error)
            self._meeting.notify_all()

    def _wait(self, rank: int) -> None:
        """Return once all ranks have come here, even if one of them fails right after."""
        with self._meeting:
            generation = self._generation
            self._arrived += 1
            if self._arrived == self.size:
                self._arrived = 0
                self._generation += 1
                self._meeting.notify_all()
                return
            self._meeting.wait_for(lambda: self._generation != generation or self._over(), self.timeout)
            if self._generation == generation:
                self._stalled = True
                self._meeting.notify_all()
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
            f"Look for a collective that some ranks skip."
        )


class ThreadedCommunicator(Communicator):
    """One thread's end of a ``ThreadedWorld``."""

    name = "threaded"

    def __init__(self, world: ThreadedWorld, rank: int) -> None:
        super().__init__(rank=rank, size=world.size)
        self.world = world
        self._calls = 0

    def agree(self, call: Call, flag: bool = False) -> bool:
        """Compare the calls of all ranks."""
        self._calls += 1
        self.world.waiting[self.rank] = call.describe(self.step)
        heard = self.world.exchange(self.rank, (call, self.step, flag))
        self.world.waiting.pop(self.rank, None)
        if any(other[:2] != heard[0][:2] for other in heard):
            raise mismatch([other.describe(step) for other, step, _ in heard], self._calls)
        return any(other[2] for other in heard)

    def perform_all_reduce(self, source: Array, target: Array, op: ReduceOp, has_nan: bool) -> None:
        """Reduce copies, as ``target`` may be the memory that another rank still reads."""
        np.copyto(target, reduce_in_order(self.world.exchange(self.rank, source.copy()), op))

    def perform_broadcast(self, target: Array, root: int) -> None:
        """Copy from the root's array."""
        sent = self.world.exchange(self.rank, target.copy() if self.rank == root else None)
        np.copyto(target, sent[root])

    def perform_all_gather(self, source: Array, target: Array) -> None:
        """Stack in rank order."""
        for row, sent in zip(target, self.world.exchange(self.rank, source.copy()), strict=True):
            np.copyto(row, sent)

    def perform_reduce_scatter(self, source: Array, target: Array, op: ReduceOp, has_nan: bool) -> None:
        """Reduce this rank's rows of all ranks."""
        sent = self.world.exchange(self.rank, source.copy())
        np.copyto(target, reduce_in_order([array[self.rank] for array in sent], op))

    def perform_all_gather_bytes(self, payload: bytes) -> list[bytes]:
        """The payloads in rank order."""
        return [bytes(sent) for sent in self.world.exchange(self.rank, payload)]

    def abort(self, error: BaseException) -> NoReturn:
        """Break the world: all ranks raise."""
        self.world.fail(self.rank, error)
        raise error


def run_ranks(size: int, function: Callable[..., Result], *args: Any, timeout: float = 20.0) -> list[Result]:
    """Call ``function(communicator, *args)`` on ``size`` ranks at once; return their results in rank order.

    Inside, ``tenon.distributed`` speaks through that rank's communicator. The first rank's error is raised.

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
