"""``Recording``: one active part of a profile, from a tap to events in memory or in a file.

Memory is bounded: beyond ``LIMIT``, events are stored in the trace file if there is one, else in a temporary
file, from which tables and exports read them again.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tenon.extend import errors, observe
from tenon_profiler.convert import Converter
from tenon_profiler.events import Event
from tenon_profiler.header import machine
from tenon_profiler.observers import Observers
from tenon_profiler.trace import Header, TraceWriter
from tenon_profiler.trace_reader import event_of, read_trace

#: Events that are kept in memory, about 0.3 kB each.
LIMIT = 150_000
#: Flush after so many record items (eleven per op) or, if a file is written, nanoseconds.
WAITING, PATIENCE = 250_000, 1_000_000_000


class Recording:
    """Opens a tap on construction. Events go to ``writer`` as they arrive; if None, they stay in memory."""

    def __init__(
        self,
        options: observe.Options,
        clock: observe.Clock,
        header: Header,
        writer: TraceWriter | None,
        observers: Observers,
    ) -> None:
        self.header = header
        self.writer = writer
        self.events: list[Event] = []
        self.converter = Converter(clock)
        self._observers = observers
        self._spool: TraceWriter | None = None
        self._flushed = time.perf_counter_ns()
        self._kept = True
        #: Whether writing the file has failed.
        self._lost = False
        self._lock = threading.Lock()
        self.tap = observe.Tap(options, self._due)
        try:
            self.tap.open()
        except BaseException:
            self.discard()
            raise

    def _due(self, tap: observe.Tap) -> None:
        if self._lock.locked():  # another thread is flushing
            return
        waiting = sum(len(lane.records) for lane in tap.lanes)
        overdue = self.writer is not None and time.perf_counter_ns() - self._flushed > PATIENCE
        if waiting > WAITING or overdue:
            self.flush()

    def flush(self) -> None:
        """Convert records to events; the trace shows how long that took."""
        begin = time.perf_counter_ns()
        events = self._take()
        self._flushed = end = time.perf_counter_ns()
        if events:
            lane = self.tap.lane()
            lane.extend((observe.SPAN, "profiler: flush", begin, end, observe.PROFILER, lane.phase, None))

    def _take(self) -> list[Event]:
        with self._lock, _uninterrupted():
            events = self.converter.convert(self.tap.take())
            if events:
                self._observers.notify(events)
                try:
                    self._store(events)
                except OSError as error:
                    self._give_up(error)
                    self.events += events if self._kept else ()
        return events

    def _give_up(self, error: OSError) -> None:
        """End the profile after a disk error; the program continues."""
        self.tap.close()
        self.converter.forget()
        self._lost = True
        file = self.writer or self._spool
        if file is not None:
            file.leave()
        warn_of_disk("a temporary file" if file is None else str(file.part), error)

    def _store(self, events: list[Event]) -> None:
        if self._lost:
            return
        target = self.writer or self._spool
        if target is None and len(self.events) + len(events) > LIMIT:
            handle, name = tempfile.mkstemp(suffix=".pt.trace.json.gz")
            os.close(handle)
            target = self._spool = TraceWriter(name, self.header)
            weakref.finalize(self, _remove, target)
            target.write(self.events)
        if target is not None:
            target.write(events)
            target.flush()
        if self._kept and len(self.events) + len(events) > LIMIT:
            self._kept = False
            self.events.clear()
        if self._kept:
            self.events += events

    @property
    def empty(self) -> bool:
        """Whether nothing was recorded yet."""
        return not self.converter.converted and not any(lane.records for lane in self.tap.lanes)

    def discard(self) -> None:
        """Stop recording and drop what was recorded."""
        self.tap.close()
        if self.writer is not None:
            self.writer.abandon()

    def step_over(self) -> None:
        """Flush at the end of a step, if due."""
        self._due(self.tap)

    def stop(self) -> None:
        """Stop recording."""
        self.tap.close()
        self._take()
        self.converter.forget()

    def save(self) -> None:
        """Complete the file that events were written to."""
        assert self.writer is not None
        if self._lost or not self.writer.part.exists():
            return
        try:
            self.writer.close()
        except OSError as error:
            self._give_up(error)

    def all_events(self) -> Iterator[Event]:
        """Yield every event, from memory or from the file."""
        if self._kept:
            yield from self.events
            return
        target = self._spool or self.writer
        assert target is not None
        target_path = target.part if target.part.exists() else target.path
        header, objects = read_trace(target_path)
        base = int(header["baseTimeNanoseconds"])
        for each in objects:
            event = event_of(each, base)
            if event is not None:
                yield event

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Write a complete trace file to ``path``."""
        details = self.header["tenon"]
        if details["machine"] is None and not self.tap.is_open:
            details["machine"] = machine()
        writer = TraceWriter(path, self.header)
        try:
            writer.write(self.all_events())
        except BaseException:
            writer.abandon()
            raise
        return writer.close()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay KeyboardInterrupt until the records are stored, so that none is lost."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    received: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda *arguments: received.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if received:
            before(*received[0])


def warn_of_disk(name: str, error: OSError) -> None:
    """Warn that the profile ends because ``name`` cannot be written."""
    warnings.warn(
        f"the profile has ended, the program goes on: {name} cannot be written ({error.strerror}). What was"
        " written can be read. Make room, or choose another folder.",
        errors.TenonWarning,
        stacklevel=2,
    )


def _remove(spool: TraceWriter) -> None:
    spool.abandon()
    spool.path.unlink(missing_ok=True)
