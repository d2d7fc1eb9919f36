"""Detect an uncaught ``SystemExit`` that a program raised without calling ``sys.exit``.

``raise SystemExit(3)`` calls no hook, and the exit functions cannot see it any more. ``sys.monitoring``, new
in Python 3.12, calls back for every frame that an exception unwinds (20 ns each); one that unwinds the
program's outermost frame is uncaught. On Python 3.11 ``failure.py`` replaces the class instead.
"""

from __future__ import annotations

import sys
import threading
from types import CodeType

#: An id that no kind of tool claims; 0, 1, 2 and 5 belong to debugger, coverage, profiler and optimizer.
TOOL = 4

_raised: SystemExit | None = None


def watch() -> None:
    """Record a ``SystemExit`` that unwinds the main thread's outermost frame, where Python can report it."""
    if sys.version_info < (3, 12):
        return
    monitoring = sys.monitoring
    if monitoring.get_tool(TOOL) is not None:
        return  # Another tool has the id: the other ranks notice the exit at their next collective.
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if frame is None:
        return
    while frame.f_back is not None:
        frame = frame.f_back
    outermost = frame.f_code

    def on_unwind(code: CodeType, offset: int, error: BaseException) -> None:
        global _raised
        if code is outermost and type(error) is SystemExit:
            _raised = error

    monitoring.use_tool_id(TOOL, "tenon.distributed")
    monitoring.register_callback(TOOL, monitoring.events.PY_UNWIND, on_unwind)
    monitoring.set_events(TOOL, monitoring.events.PY_UNWIND)


def uncaught() -> SystemExit | None:
    """The ``SystemExit`` that ended the program, if it was raised without ``sys.exit`` and was recorded."""
    return _raised
