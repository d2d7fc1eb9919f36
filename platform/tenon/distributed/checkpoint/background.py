"""The thread in which ``async_save`` writes: one checkpoint at a time, over a communicator of its own."""

from __future__ import annotations

import concurrent.futures
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tenon.distributed.checkpoint.metadata import Metadata
from tenon.distributed.checkpoint.ranks import Ranks
from tenon.distributed.checkpoint.staging import OwnStager
from tenon.distributed.communication import world
from tenon.distributed.communication.communicator import Communicator
from tenon.errors import CheckpointWarning

#: The metadata of the checkpoint, when it is complete.
Saved: TypeAlias = concurrent.futures.Future[Metadata]


class _Observed(concurrent.futures.Future[Metadata]):
    """A future that knows whether anybody has asked it for its exception."""

    asked = False

    def result(self, timeout: float | None = None) -> Metadata:
        self.asked = True
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.asked = True
        return super().exception(timeout)


@dataclass
class _State:
    """The last save of this rank, and the memory of its copies."""

    last: _Observed | None = None
    stager: OwnStager | None = None


_alone = _State()


def _state() -> _State:
    """The state that the group of all ranks keeps, or before there is one this process."""
    communicator = world.current()
    if communicator is None:
        return _alone
    found: _State = communicator.kept.setdefault(_State, _State())
    return found


def wait() -> None:
    """Wait for the checkpoint that is being written; raise its error unless its future has been asked."""
    state = _state()
    last, state.last = state.last, None
    if last is not None:
        concurrent.futures.wait([last])
        if not last.asked:
            last.result()


def stager() -> OwnStager:
    """The stager of calls that bring none."""
    state = _state()
    if state.stager is None:
        state.stager = OwnStager()
    return state.stager


def ranks_beside(ranks: Ranks) -> Ranks | None:
    """``ranks`` for the thread, over a communicator that is created once for each group; None if only one
    thread of this process may communicate, so that the caller has to write."""
    if ranks.size == 1:
        return ranks
    kept = ranks.communicator.kept
    if __name__ not in kept:
        kept[__name__] = ranks.communicator.beside()
        if kept[__name__] is None:
            warnings.warn(
                "async_save writes while the caller waits, as this MPI allows calls from one thread only."
                " Install one with MPI_THREAD_MULTIPLE (`tenon doctor`).",
                CheckpointWarning,
                stacklevel=3,
            )
    beside: Communicator | None = kept[__name__]
    return None if beside is None else Ranks(beside, ranks.coordinator)


def finished(metadata: Metadata) -> Saved:
    """The future of a checkpoint that is complete."""
    future = _Observed()
    future.set_result(metadata)
    return future


def start(function: Callable[[], Metadata], name: str) -> Saved:
    """Call ``function`` in a thread, for which the program waits before it ends."""
    future = _Observed()
    _state().last = future

    def work() -> None:
        try:
            result = function()
        except BaseException as error:  # raised by the future and by the next save
            future.set_exception(error)
            warnings.warn(f"async_save of {name!r} failed: {error}", CheckpointWarning, stacklevel=2)
        else:
            future.set_result(result)

    threading.Thread(target=work, name="checkpoint writer").start()
    return future
