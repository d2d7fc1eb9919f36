"""Notify listeners, such as a profiler that groups by module, of every module call.

``Module.__call__`` tests ``active`` once. From the first ``listen`` on, each module call pushes and
pops its path, in all threads; the last ``unlisten`` sets ``active`` to None, which ends the cost.

Paths are those of ``named_modules()`` of the outermost module that is running. They are looked up in a
table cached per root and rebuilt when any module tree changes (``Generation.structure``).
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Protocol

from tenon.tensors.generation import Generation

if TYPE_CHECKING:
    from tenon.nn.module import Module


class Listener(Protocol):
    """The protocol of listeners to the begin and end of module calls."""

    def enter(self, path: str, module: Module) -> None:
        """Called before ``module`` runs; ``path`` is ``""`` for the outermost one."""
        ...

    def leave(self, path: str, module: Module) -> None:
        """Called after ``module`` has returned or raised."""
        ...


class _Running(threading.local):
    """The running modules of one thread, outermost first, each with its path."""

    def __init__(self) -> None:
        self.stack: list[tuple[Module, str]] = []


class RunningCalls:
    """The stack of running module calls of each thread, and their listeners."""

    def __init__(self) -> None:
        self.listeners: tuple[Listener, ...] = ()
        self._running = _Running()
        self._paths: weakref.WeakKeyDictionary[Module, tuple[int, dict[int, str]]]
        self._paths = weakref.WeakKeyDictionary()

    def push(self, module: Module) -> None:
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

    def _path(self, root: Module, caller: tuple[Module, str], module: Module) -> str:
        """Return the path of ``module`` below ``root``; one below the caller's if it is not registered
        there."""
        version, table = self._paths.get(root, (-1, {}))
        if version != Generation.structure:
            table = {id(child): path for path, child in root.named_modules()}
            self._paths[root] = (Generation.structure, table)
        path = table.get(id(module))
        if path is not None:
            return path
        name = f"<{type(module).__name__}>"
        return f"{caller[1]}.{name}" if caller[1] else name


_running_calls = RunningCalls()
active: RunningCalls | None = None


def listen(listener: Listener) -> None:
    """Notify ``listener`` of every module call from now on."""
    global active
    _running_calls.listeners = (*_running_calls.listeners, listener)
    active = _running_calls


def unlisten(listener: Listener) -> None:
    """Remove ``listener``; ValueError if it is unknown, a sign of an unbalanced close."""
    global active
    if all(other is not listener for other in _running_calls.listeners):
        raise ValueError(
            f"{listener!r} is not listening to module calls. Call listen() first, unlisten() once."
        )
    _running_calls.listeners = tuple(other for other in _running_calls.listeners if other is not listener)
    if not _running_calls.listeners:
        active = None
