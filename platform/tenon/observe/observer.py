"""``Observer``: what a plugin derives to do something else with the events of a profile."""

from __future__ import annotations

import traceback
import warnings
from typing import Any

from tenon.errors import TenonWarning
from tenon.observe.events import OpEvent, ScopeEvent, StepEvent
from tenon.plugins.manager import host


class Observer:
    """Is told of everything in a profile, in batches, some time after it happened.

    Offered by the hook ``tenon_open_observers``. What it does takes no time from the ops that are measured,
    but from the step that follows. One that raises is told no more, with a warning: programs outlive it.
    """

    def on_op(self, event: OpEvent) -> None:
        """An op is over."""

    def on_scope(self, event: ScopeEvent) -> None:
        """A scope is over."""

    def on_step(self, event: StepEvent) -> None:
        """A step is over."""

    def close(self) -> None:
        """The profile is over."""


def open_observers(session: Any = None) -> list[Observer]:
    """Those that plugins offer for a profile that begins; a warning names a plugin that fails to."""
    found: list[Observer] = []
    for offer in reversed(host().hook.tenon_open_observers.get_hookimpls()):
        try:
            offered: Any = offer.function(**dict.fromkeys(offer.argnames, session))
            found += offered or ()
        except Exception as error:
            warn_of_sink(f"of the plugin {offer.plugin_name}", error)
    return found


def warn_of_sink(name: str, error: Exception) -> None:
    """Say that a sink is told no more, because of ``error``, and where that was raised."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    warnings.warn(
        f"the sink {name} is told no more, the program and its profile go on: {type(error).__name__}: {error}"
        f" ({place.filename}:{place.lineno}). Mend it, or leave it out.",
        TenonWarning,
        stacklevel=2,
    )
