"""Which module call is running in this thread: named in errors, and by nodes of the tape.

``Module.__call__`` maintains ``running``, and the tape stores it on every node, so that an error in a
backward pass can name the module: about 0.1 us per module call. ``nn/call_listeners.py`` notifies listeners
of each module call.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, TypeAlias

Place: TypeAlias = tuple[weakref.ref[Any], int, type]  # of modules, a class above the engine


class _RunningModule(threading.local):
    #: ``(weak reference to the outermost running module, id and class of the innermost one)``; None outside
    #: of modules.
    place: Place | None = None


running = _RunningModule()


def path_of(place: Place | None) -> str:
    """The path in ``named_modules()`` of a node's ``place``; the class name of a root, or of a module that is
    gone."""
    if place is None:
        return ""
    root = place[0]()
    for path, module in () if root is None else root.named_modules():
        if id(module) == place[1]:
            return str(path) or place[2].__name__
    return place[2].__name__


def suffix() -> str:
    """The running module as the end of a message: ``" in module encoder.layers.3"``; ``""`` if none runs."""
    path = path_of(running.place)
    return f" in module {path}" if path else ""
