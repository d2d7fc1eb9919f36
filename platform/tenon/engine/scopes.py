"""Which module call is running: tracked only while there is a listener.

``Module.__call__`` tests ``scopes.active`` once. A profiler, or an autograd mode that wants to name the
module of every node, opens a ``Scopes`` listener; from then on each module call pushes and pops its
path, for all threads. Closing the last listener sets ``active`` to ``None``, which ends the cost.

Paths are those of ``named_modules()`` of the outermost module that is running. They are looked up in a
table cached per root and rebuilt when any module tree changes (``structure_changed``).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import Any, Protocol

Place = tuple[weakref.ref[Any], int, type]


class Tree(Protocol):
    """The protocol of modules that a scope uses."""

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        """Every module below, itself included, with its dotted path."""
        ...


class Listener(Protocol):
    """The protocol of listeners to the begin and end of module calls."""

    def enter(self, path: str, module: Any) -> None:
        """``module`` begins; ``path`` is ``""`` for the outermost one."""
        ...

    def leave(self, path: str, module: Any) -> None:
        """``module`` has returned or raised."""
        ...


class _Running(threading.local):
    def __init__(self) -> None:
        self.stack: list[tuple[Any, str]] = []


class Scopes:
    """The stack of running module calls of each thread, and their listeners."""

    def __init__(self) -> None:
        self.listeners: tuple[Listener, ...] = ()
        self._running = _Running()
        self._paths: weakref.WeakKeyDictionary[Any, tuple[int, dict[int, str]]] = weakref.WeakKeyDictionary()

    def push(self, module: Tree) -> None:
        """Enter ``module``; its path is relative to the outermost running module."""
        stack = self._running.stack
        path = self._path(stack[0][0], stack[-1], module) if stack else ""
        stack.append((module, path))
        _show(stack)
        for listener in self.listeners:
            listener.enter(path, module)

    def pop(self) -> None:
        """Leave the innermost running module."""
        stack = self._running.stack
        module, path = stack.pop()
        _show(stack)
        for listener in reversed(self.listeners):
            listener.leave(path, module)

    def path(self) -> str | None:
        """The path of the innermost running module, or None outside of any module call."""
        stack = self._running.stack
        return stack[-1][1] if stack else None

    def _path(self, root: Tree, caller: tuple[Any, str], module: Tree) -> str:
        stamp, table = self._paths.get(root, (-1, {}))
        if stamp != _structure.version:
            table = {id(each): path for path, each in root.named_modules()}
            self._paths[root] = (_structure.version, table)
        found = table.get(id(module))
        if found is not None:
            return found
        # A module that is not registered in the tree gets a name that tells its caller.
        own = f"<{type(module).__name__}>"
        return f"{caller[1]}.{own}" if caller[1] else own


class _Structure:
    version = 0


_structure = _Structure()
_scopes = Scopes()
active: Scopes | None = None
#: Label of the innermost running module while there is a listener: its path, or the class name of a root.
current: str | None = None


class _Here(threading.local):
    """Where this thread is: ``place`` is ``(weak reference to the outermost running module, id, class)``.

    ``id`` and class are the innermost module's. ``Module.__call__`` maintains it and the tape stores it on
    every node, so that an error in backward can name the module: about 0.1 us per module call.
    """

    place: Place | None = None


here = _Here()


def _show(stack: list[tuple[Any, str]]) -> None:
    global current
    current = (stack[-1][1] or type(stack[-1][0]).__name__) if stack else None


def path_of(place: Place | None) -> str:
    """The module path of a node's ``place``; the class name of a root, or of a module that is gone."""
    if place is None:
        return ""
    root = place[0]()
    for path, module in () if root is None else root.named_modules():
        if id(module) == place[1]:
            return str(path) or place[2].__name__
    return place[2].__name__


def suffix() -> str:
    """The running module as the end of a message: ``" in module encoder.layers.3"``; ``""`` if unknown."""
    return f" in module {current}" if current else ""


def structure_changed() -> None:
    """Invalidate cached paths: some module gained, lost or replaced a child."""
    _structure.version += 1


def listen(listener: Listener) -> None:
    """Notify ``listener`` of every module call from now on."""
    global active
    _scopes.listeners = (*_scopes.listeners, listener)
    active = _scopes


def unlisten(listener: Listener) -> None:
    """Remove ``listener``; ValueError if it is unknown, a sign of an unbalanced close."""
    global active
    if all(each is not listener for each in _scopes.listeners):
        raise ValueError(
            f"{listener!r} is not listening to module scopes. Call listen() first, unlisten() once."
        )
    _scopes.listeners = tuple(each for each in _scopes.listeners if each is not listener)
    if not _scopes.listeners:
        active = None


def current_path() -> str | None:
    """The path of the innermost running module in this thread; None if unknown or without a listener."""
    return None if active is None else active.path()


def structure_version() -> int:
    """A counter that changes whenever a module gains, loses or replaces a child."""
    return _structure.version
