"""``Observer``: the base class by which a plugin receives the events of a profile."""

from __future__ import annotations

import traceback
import warnings
from typing import Any

from tenon.errors import TenonWarning
from tenon.plugins.manager import host
from tenon.profiler.observe.events import OpEvent, ScopeEvent, StepEvent


class Observer:
    """Receives every event of a profile, in batches, some time after it happened.

    Plugins return observers from the hook ``tenon_open_observers``. The time that an observer takes is not
    part of the measured ops but of the step that follows. An observer that raises is removed with a warning;
    the program continues.
    """

    def on_op(self, event: OpEvent) -> None:
        """Called for each op that has ended."""

    def on_scope(self, event: ScopeEvent) -> None:
        """Called for each scope that has ended."""

    def on_step(self, event: StepEvent) -> None:
        """Called for each step that has ended."""

    def close(self) -> None:
        """Called at the end of the profile; release resources here."""


def open_observers(session: object = None) -> list[Observer]:
    """Collect the observers of all plugins for a new profile; warn of a plugin whose hook raises."""
    observers: list[Observer] = []
    for implementation in reversed(host().hook.tenon_open_observers.get_hookimpls()):
        try:
            # The value that the plugin returned, which is used as a sequence of observers.
            opened: Any = implementation.function(**dict.fromkeys(implementation.argnames, session))
            observers += opened or ()
        except Exception as error:
            warn_of_sink(f"of the plugin {implementation.plugin_name}", error)
    return observers


def warn_of_sink(name: str, error: Exception) -> None:
    """Warn that the receiver ``name`` of events is removed because of ``error``, raised at the file and line
    in the message."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    warnings.warn(
        f"the sink {name} receives no more events, the program and its profile continue:"
        f" {type(error).__name__}: {error}"
        f" ({frame.filename}:{frame.lineno}). Fix it, or leave it out.",
        TenonWarning,
        stacklevel=2,
    )
