"""One slot through which everything that watches or rewrites ops enters.

``SLOT.top`` is None unless a recorder, profiler or autocast is on; ``Op.__call__`` pays one
attribute read for that. An interceptor sees ``run(op, args, attrs)`` and calls ``SLOT.below(self)``
to reach the next one, the last of which is plain dispatch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Interceptor(Protocol):
    """Anything that stands between an op's call and its execution."""

    def run(self, op: Any, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """Handle one op call; return what the op returns."""
        ...


class Slot:
    """The stack of interceptors; ``top`` is the only attribute read per op."""

    __slots__ = ("_stack", "execute", "top")

    def __init__(self) -> None:
        self.top: Interceptor | None = None
        self._stack: list[Interceptor] = []
        self.execute: Callable[..., Any]

    def push(self, interceptor: Interceptor) -> None:
        """Put ``interceptor`` on top: it sees every op first."""
        self._stack.append(interceptor)
        self.top = interceptor

    def pop(self, interceptor: Interceptor) -> None:
        """Remove ``interceptor``, wherever it stands."""
        self._stack.remove(interceptor)
        self.top = self._stack[-1] if self._stack else None

    def below(self, interceptor: Interceptor) -> Callable[..., Any]:
        """``run`` of the interceptor under this one, or plain dispatch."""
        index = self._stack.index(interceptor)
        return self._stack[index - 1].run if index else self.execute


SLOT = Slot()
