"""The steps of saving and loading on all ranks: if one rank fails, all raise what happened on which."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from tenon.distributed.checkpoint import wire
from tenon.distributed.checkpoint.api import CheckpointException, wrap_exception
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.local import LocalCommunicator

T = TypeVar("T")
R = TypeVar("R")
_DONE, _FAILED = b"\x00", b"\x01"
"""The first byte of what a rank sends: a value follows, or a failure."""


@functools.cache
def _this_process() -> Communicator:
    """This process as a group of one."""
    return LocalCommunicator()


class Ranks:
    """The ranks of a communicator, or this process alone; ``coordinator`` is the rank that plans for all."""

    def __init__(self, communicator: Communicator | None, coordinator: int = 0) -> None:
        self.communicator = _this_process() if communicator is None else communicator
        self.communicator.check_root(coordinator)
        self.rank, self.size, self.coordinator = self.communicator.rank, self.communicator.size, coordinator
        self.is_coordinator = self.rank == coordinator

    def reduce_scatter(self, step: str, own: Callable[[], T], combine: Callable[[list[T]], list[R]]) -> R:
        """``combine`` the values that ``own`` returns on the ranks, on the coordinator; each rank gets its
        item of the result."""
        if self.size == 1:
            return self._alone(step, lambda: combine([own()])[0])
        sent = self._exchange(step, lambda: wire.encode(own()))
        answer = self._answer(
            step, lambda: wire.join([*map(wire.encode, combine([*map(wire.decode, sent)]))])
        )
        result: R = wire.decode(wire.part(answer, self.rank))
        return result

    def all_reduce(self, step: str, own: Callable[[], T], combine: Callable[[list[T]], R]) -> R:
        """``combine`` the values that ``own`` returns on the ranks, on the coordinator; all get the
        result."""
        if self.size == 1:
            return self._alone(step, lambda: combine([own()]))
        sent = self._exchange(step, lambda: wire.encode(own()))
        answer = self._answer(step, lambda: wire.encode(combine([*map(wire.decode, sent)])))
        result: R = wire.decode(answer)
        return result

    def agree(self, step: str, own: Callable[[], None]) -> None:
        """Call ``own`` on all ranks; raise on all if it raised on one."""

        def call() -> bytes:
            own()
            return b""

        if self.size == 1:
            self._alone(step, own)
        else:
            self._exchange(step, call)

    def _alone(self, step: str, function: Callable[[], T]) -> T:
        try:
            return function()
        except Exception as error:
            raise CheckpointException(step, {self.rank: wrap_exception(error)}) from error

    def _answer(self, step: str, function: Callable[[], bytes]) -> bytes:
        """What ``function`` returns on the coordinator."""
        return self._exchange(step, function if self.is_coordinator else bytes)[self.coordinator]

    def _exchange(self, step: str, function: Callable[[], bytes]) -> list[bytes]:
        """What ``function`` returns on each rank; CheckpointException on all if it raised on one."""
        failures = {}
        try:
            payload = _DONE + function()
        except Exception as error:
            failures[self.rank] = wrap_exception(error)
            payload = _FAILED + wire.encode_failure(failures[self.rank])
        sent = self.communicator.all_gather_bytes(payload, name=f"checkpoint: {step}")
        failed = {rank: each[1:] for rank, each in enumerate(sent) if each[:1] == _FAILED}
        if failed:
            found = {rank: wire.decode_failure(text) for rank, text in failed.items()} | failures
            raise CheckpointException(step, found) from (failures[self.rank][0] if failures else None)
        return [each[1:] for each in sent]
