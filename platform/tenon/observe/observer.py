"""``Observer``: what a plugin derives to do something else with the events of a profile."""

from __future__ import annotations

from typing import Any

from tenon.observe.events import OpEvent, ScopeEvent, StepEvent
from tenon.plugins.manager import host


class Observer:
    """Is told of everything in a profile, in batches, some time after it happened.

    Offered by the hook ``tenon_open_observers``. What it does takes no time from the ops that are measured,
    but from the step that follows.
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
    """Those that plugins offer for a profile that begins."""
    offered = host().hook.tenon_open_observers(session=session)
    return [observer for some in offered for observer in some]
