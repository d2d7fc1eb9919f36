"""What happens while a program runs: ops, modules, steps, collectives, memory, as records and as events.

Protocol only; who collects and writes is a plugin (``tenon_profiler``). ``tap.py`` opens the places where
things can be seen, ``records.py`` says what comes out, ``observer.py`` is for plugins that want events.
"""

from tenon.observe.events import OpEvent, ScopeEvent, StepEvent
from tenon.observe.observer import Observer, open_observers
from tenon.observe.scopes import record_function
from tenon.observe.tap import Options, Tap

__all__ = [
    "Observer",
    "OpEvent",
    "Options",
    "ScopeEvent",
    "StepEvent",
    "Tap",
    "open_observers",
    "record_function",
]
