"""Dispatch a profile's events to the observers that other plugins provide."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from tenon.extend import observe
from tenon_profiler.events import Event


class Observers:
    """The observers of one profile; one that raises is removed, with a warning."""

    def __init__(self, observers: Iterable[observe.Observer]) -> None:
        self._observers = list(observers)

    def notify(self, events: Sequence[Event]) -> None:
        """Call ``on_op``, ``on_scope`` or ``on_step`` of each observer for each event."""
        for observer in list(self._observers):
            try:
                for event in events:
                    _notify(observer, event)
            except Exception as error:
                self._observers.remove(observer)
                observe.warn_of_sink(type(observer).__qualname__, error)
                with contextlib.suppress(
                    Exception
                ):  # its failure is reported already; try to release its file
                    observer.close()

    def close(self) -> None:
        """Close the observers at the end of the profile."""
        for observer in self._observers:
            try:
                observer.close()
            except Exception as error:
                observe.warn_of_sink(type(observer).__qualname__, error)


def _notify(observer: observe.Observer, event: Event) -> None:
    name, phase = event.name, event.get("Phase", "forward")
    if name.startswith("ProfilerStep#"):
        observer.on_step(observe.StepEvent(int(name.partition("#")[2]), event.begin, event.end))
    elif event.category == "cpu_op" or name.startswith("gloo:"):
        shapes = tuple(tuple(dims) for dims in event.get("Input Dims", ()))
        observer.on_op(
            observe.OpEvent(
                name, event.begin, event.end, event.tid, phase, event.get("Module", ""), shapes,
                event.get("FLOPs", 0.0), event.get("Bytes", 0), round(event.get("Wait us", 0) * 1000),
            )
        )  # fmt: skip
    elif event.category in ("user_annotation", "python_function"):
        module = event.get("Module", "")
        observer.on_scope(observe.ScopeEvent(name, event.begin, event.end, event.tid, phase, module))
