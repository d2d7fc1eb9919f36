"""``PASS``: the nested backward passes that run in this thread, and the callbacks queued for their end.

A custom Function may run a backward pass in its ``backward``, and so on: each level takes a dozen of Python's
thousand frames. PyTorch continues in another thread, which would lack this thread's state; here Python's
recursion limit is raised, as Python frames take no space on the C stack.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenon.engine.sweep import Sweep

#: Every ``EVERY`` nested passes raise the recursion limit by ``_FRAMES``.
EVERY, _FRAMES = 25, 1000
#: The upper bound, so that infinite recursion still is a RecursionError.
_LAST = 100_000


class _Pass(threading.local):
    """The innermost backward pass of this thread."""

    #: How many nested passes are running, those of ``grad`` included.
    inside: int = 0
    #: The innermost one; None outside of passes.
    sweep: Sweep | None = None
    #: The innermost one collects the gradients of some tensors only: ``grad``, ``backward(inputs=...)``.
    partial: bool = False
    #: Callbacks for the end of the outermost one.
    queued: tuple[Callable[[], None], ...] = ()


PASS = _Pass()


def queue_callback(callback: Callable[[], None]) -> bool:
    """Call ``callback`` once, when the outermost pass (``backward`` or ``grad``) of this thread is done; for
    use in hooks.

    Returns True unless it is queued already. A pass that raises drops its callbacks.
    """
    if callback in PASS.queued:
        return False
    PASS.queued = (*PASS.queued, callback)
    return True


def call_queued() -> None:
    """Call the queued callbacks at the end of a pass, unless it is nested in another."""
    while PASS.queued and not PASS.inside:  # a callback may queue another
        queued, PASS.queued = PASS.queued, ()
        for callback in queued:
            callback()


class _RecursionLimit:
    """The number of raises in effect, and the original limit; process-wide, as the limit is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._raises = 0
        self._original = 0

    def increase(self) -> None:
        """Raise the limit by ``_FRAMES``."""
        with self._lock:
            now = sys.getrecursionlimit()
            if not self._raises:
                self._original = now
            self._raises += 1
            sys.setrecursionlimit(min(now + _FRAMES, max(now, _LAST)))

    def restore(self) -> None:
        """Undo one ``increase``; the last one restores the original limit."""
        with self._lock:
            self._raises -= 1
            if not self._raises:
                sys.setrecursionlimit(self._original)


RECURSION_LIMIT = _RecursionLimit()
