"""Timestamps on a device's own clock: CUDA events, read on demand."""

from __future__ import annotations

import time

from tenon_cuda.library import Cupy, CupyObject


class Mark:
    """A point in a device's stream; ``int(mark)`` and ``later - earlier`` wait for it and are nanoseconds."""

    __slots__ = ("_clock", "event")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.event = clock.event()

    def __int__(self) -> int:
        return self._clock.start + self._clock.between(self._clock.origin, self.event)

    __index__ = __int__

    def __sub__(self, earlier: Mark) -> int:
        return self._clock.between(earlier.event, self.event)


class Clock:
    """The clock of one device: its events, relative to a first one."""

    def __init__(self, library: Cupy) -> None:
        self._library = library
        self.origin = self.event()
        self.origin.synchronize()
        self.start = time.perf_counter_ns()

    def event(self) -> CupyObject:
        """Record an event in the current stream of the current device."""
        event = self._library.cuda.Event()
        event.record()
        return event

    def between(self, earlier: CupyObject, later: CupyObject) -> int:
        """Wait for both events and return the nanoseconds between them."""
        earlier.synchronize()
        later.synchronize()
        return int(self._library.cuda.get_elapsed_time(earlier, later) * 1_000_000)
