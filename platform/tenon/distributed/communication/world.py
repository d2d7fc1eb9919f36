"""The current communicator of the process or context.

The process has one, created at first use by the function that ``startup.py`` passes to ``launch_with``; a
context variable overrides it, so that the threads of ``threaded.py`` are ranks of their own.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenon.distributed.communication.communicator import Communicator

_override: contextvars.ContextVar[Communicator | None] = contextvars.ContextVar("communicator", default=None)
_lock = threading.RLock()
_process: Communicator | None = None
_launch: Callable[[], Communicator] | None = None


def current() -> Communicator | None:
    """The current communicator, or None if none has been created."""
    return _override.get() or _process


def get_communicator() -> Communicator:
    """Return the current communicator; creates the process's at the first call."""
    communicator = current()
    if communicator is not None:
        return communicator
    assert _launch is not None  # set by ``import tenon``
    return _launch()


def process_communicator() -> Communicator | None:
    """The process's communicator, whatever the context uses; None if none has been created."""
    return _process


def launch_with(function: Callable[[], Communicator]) -> None:
    """Set the function that creates the process's communicator."""
    global _launch
    _launch = function


def set_process_communicator(communicator: Communicator | None) -> None:
    """Set the process's communicator; None removes it."""
    global _process
    with _lock:
        _process = communicator


@contextlib.contextmanager
def use_communicator(communicator: Communicator) -> Iterator[Communicator]:
    """Use ``communicator`` inside a ``with`` block, in this thread and context only."""
    token = _override.set(communicator)
    try:
        yield communicator
    finally:
        _override.reset(token)
