"""What to do when a backward pass is over: data parallel averages gradients then, parameters unused or
not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class _Pass(threading.local):
    """The backward pass in progress in this thread: how deep, of what kind, and what to call
    at its end."""

    #: How many passes, ``grad`` too, are inside of each other.
    inside: int = 0
    #: The innermost one.
    sweep: Any = None  # a Sweep; None outside of passes
    #: The innermost pass collects the gradients of some tensors only: ``grad``, ``backward(inputs=...)``.
    partial: bool = False
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
