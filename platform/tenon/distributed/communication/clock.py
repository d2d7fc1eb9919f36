"""``Clock``: how long a rank has waited for other ranks, and how long it has read data.

An engine has one and times its waits: ``tenon_mpi`` in the barrier of shared memory, where only a rank that
must wait reads the time, and around calls of MPI that wait. Groups that are split from a communicator have
the same clock. For an engine without one, ``follow`` times ``Communicator.agree``, which returns when all
ranks have called it. Communicators from ``beside`` are of background threads, and their waits do not count.

Of a wait that is still going on, ``read`` counts the part until now, so that another thread can read the
clock at any time. ``watchdog.py`` does, and ``stragglers.py`` compares the clocks of all ranks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from tenon.distributed.communication import world
from tenon.engine.watchers import WATCHERS

if TYPE_CHECKING:
    from tenon.distributed.communication.calls import Call
    from tenon.distributed.communication.communicator import Communicator

_NOTHING = nullcontext()
_now = time.monotonic_ns


class Reading(NamedTuple):
    """The state of a clock, in nanoseconds; ``waits`` is the number of waits that have begun."""

    waits: int
    waited: int
    data: int


class Clock:
    """The time that a rank has spent in waits, and in reading data."""

    __slots__ = ("_data", "_reading", "_since", "_waited", "_waits", "stage")

    def __init__(self) -> None:
        self._waits = self._waited = self._data = 0
        self._since = 0
        """When the wait began that is going on; 0 if none is."""
        self._reading: tuple[int, int] | None = None
        """When the reading of data began that is going on, and what had been waited until then."""
        self.stage = 0
        """The stage of a pipeline that the rank computes, from 1: stages wait by nature for each other."""

    def begin(self) -> int:
        """A wait begins; returns what ``end`` needs: the time, or 0 in another wait, which counts already."""
        if self._since:
            return 0
        self._waits += 1
        self._since = begun = _now()
        return begun

    def end(self, begun: int) -> None:
        """The wait that ``begun`` is over."""
        if begun:
            self._waited += _now() - begun
            self._since = 0

    def waiting(self) -> AbstractContextManager[object]:
        """A context around a wait for another rank; a wait inside of another one counts once."""
        return _Wait(self)

    def reading(self) -> AbstractContextManager[object]:
        """A context around the reading of data; waits for other ranks inside of it are none of it."""
        return _NOTHING if self._reading is not None else _Data(self)

    def follow(self, communicator: Communicator) -> None:
        """Time the calls of ``communicator`` and of groups that will be split from it."""
        agree, split = communicator.agree, communicator.split
        communicator.kept[Clock] = self

        def agree_timed(call: Call) -> None:
            begun = self.begin()
            try:
                agree(call)
            finally:
                self.end(begun)

        def split_timed(color: int | None, key: int = 0, *, name: str | None = None) -> Communicator | None:
            group = split(color, key, name=name)
            if group is not None:
                self.follow(group)
            return group

        # Set on the instance, as engines need no code for it.
        communicator.agree = agree_timed  # type: ignore[method-assign]
        communicator.split = split_timed  # type: ignore[method-assign]

    def read(self) -> Reading:
        """The sums until now; any thread may call it."""
        for _ in range(100):  # Until no wait began or ended meanwhile, at the first time but for rare cases.
            since, waited, waits = self._since, self._waited, self._waits
            reading, data = self._reading, self._data
            now = _now()
            if (since, waited, reading) == (self._since, self._waited, self._reading):
                break
        waited += now - since if since else 0
        if reading is not None:
            data += max(now - reading[0] - (waited - reading[1]), 0)
        return Reading(waits, waited, data)


class _Wait:
    """The context of ``Clock.waiting``."""

    __slots__ = ("_begun", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __enter__(self) -> None:
        self._begun = self._clock.begin()

    def __exit__(self, *exception: object) -> None:
        self._clock.end(self._begun)


class _Data:
    """The context of ``Clock.reading``."""

    __slots__ = ("_clock",)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __enter__(self) -> None:
        self._clock._reading = _now(), self._clock._waited

    def __exit__(self, *exception: object) -> None:
        clock = self._clock
        data = clock.read().data
        clock._reading = None
        clock._data = data


def clock_of(communicator: Communicator) -> Clock | None:
    """The clock that times ``communicator``; None if nothing does."""
    found: Clock | None = communicator.kept.get(Clock)
    return found


def reading(name: str) -> AbstractContextManager[object]:
    """A context around the reading of a batch, which profiles show by ``name`` and the clock counts."""
    communicator = world.current()
    clock = None if communicator is None else clock_of(communicator)
    if WATCHERS.span is None:
        return _NOTHING if clock is None else clock.reading()
    span = WATCHERS.span(f"enumerate(DataLoader)#{name}.__next__", "data")
    return span if clock is None else _both(span, clock.reading())


@contextmanager
def _both(outer: AbstractContextManager[object], inner: AbstractContextManager[object]) -> Iterator[None]:
    with outer, inner:
        yield
