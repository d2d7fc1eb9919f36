"""Record what happens while a program runs: ops, modules, steps, collectives and memory.

This is the protocol only; a plugin (``tenon_profiler``) collects and writes. ``tap.py`` instruments the
program, ``records.py`` documents the records, ``observer.py`` has the base class of receivers of events.
"""

from tenon.profiler.observe.clock import DRIFT, Clock, Place, align, own_clock, place
from tenon.profiler.observe.events import OpEvent, ScopeEvent, StepEvent
from tenon.profiler.observe.observer import Observer, open_observers, warn_of_sink
from tenon.profiler.observe.records import (
    ANNOTATION,
    COLLECTIVE,
    DEVICE,
    MEMORY,
    MODULE,
    NODE,
    OP,
    PROFILER,
    PROGRAM,
    RELEASED,
    SPAN,
    split,
)
from tenon.profiler.observe.scopes import record_function
from tenon.profiler.observe.tap import Options, Tap, now

__all__ = [
    "ANNOTATION",
    "COLLECTIVE",
    "DEVICE",
    "DRIFT",
    "MEMORY",
    "MODULE",
    "NODE",
    "OP",
    "PROFILER",
    "PROGRAM",
    "RELEASED",
    "SPAN",
    "Clock",
    "Observer",
    "OpEvent",
    "Options",
    "Place",
    "ScopeEvent",
    "StepEvent",
    "Tap",
    "align",
    "now",
    "open_observers",
    "own_clock",
    "place",
    "record_function",
    "split",
    "warn_of_sink",
]
