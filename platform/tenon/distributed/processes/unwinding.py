"""Notice the ``SystemExit`` that leaves the program although nobody called ``sys.exit``.

``raise SystemExit(3)`` goes through no hook, and at exit Python has forgotten it. ``sys.monitoring``, new in
Python 3.12, tells of every frame that an exception leaves (20 ns each); the program's outermost frame is
the one that counts. Python 3.11 has no such means: ``failure.py`` goes another way there.
"""

from __future__ import annotations

import sys
import threading
from types import CodeType

#: An id that no kind of tool claims; 0, 1, 2 and 5 belong to debugger, coverage, profiler and optimizer.
TOOL = 4

_raised: SystemExit | None = None


def watch() -> None:
    """Begin to look at what leaves the main thread's outermost frame; nothing where that cannot be done."""
    if sys.version_info < (3, 12):
        return
    monitoring = sys.monitoring
    if monitoring.get_tool(TOOL) is not None:
        return  # Somebody else's: the other ranks then learn at their next collective, as on Python 3.11.
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
    """The ``SystemExit`` that ended the program, if it was raised and not called, and could be seen."""
    return _raised
