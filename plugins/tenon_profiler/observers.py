"""Tells observers of other plugins what events a profile found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tenon.extend import observe
from tenon_profiler.events import Event


class Told:
    """The observers of one profile."""

    def __init__(self, observers: Sequence[Any]) -> None:
        self._observers = observers

    def tell(self, events: Iterable[Event]) -> None:
        """Each event to each observer, as what it is."""
        if not self._observers:
            return
        for event in events:
            for observer in self._observers:
                _tell(observer, event)

    def close(self) -> None:
        """The profile is over."""
        for observer in self._observers:
            observer.close()


def _tell(observer: Any, event: Event) -> None:
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
