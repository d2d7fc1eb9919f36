"""Tell listeners of every module call, as a profiler that groups by module.

``Module.__call__`` tests ``scopes.active`` once. From the first ``listen`` on, each module call pushes and
pops its path, in all threads; the last ``unlisten`` sets ``active`` to None, which ends the cost.

Paths are those of ``named_modules()`` of the outermost module that is running. They are looked up in a
table cached per root and rebuilt when any module tree changes (``Generation.structure``).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import Any, Protocol

from tenon.tensors.generation import Generation


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
        for listener in self.listeners:
            listener.enter(path, module)

    def pop(self) -> None:
        """Leave the innermost running module."""
        stack = self._running.stack
        module, path = stack.pop()
        for listener in reversed(self.listeners):
            listener.leave(path, module)

    def _path(self, root: Tree, caller: tuple[Any, str], module: Tree) -> str:
        version, table = self._paths.get(root, (-1, {}))
        if version != Generation.structure:
            table = {id(each): path for path, each in root.named_modules()}
            self._paths[root] = (Generation.structure, table)
        found = table.get(id(module))
        if found is not None:
            return found
        # A module that is not registered in the tree gets a name that tells its caller.
        own = f"<{type(module).__name__}>"
        return f"{caller[1]}.{own}" if caller[1] else own


_scopes = Scopes()
active: Scopes | None = None


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
