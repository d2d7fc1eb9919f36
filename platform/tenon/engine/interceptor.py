"""``SLOT``, the stack of interceptors: objects that observe or rewrite ops before they are executed.

``SLOT.top`` is None unless a recorder, profiler or autocast is on; ``Op.__call__`` pays one
attribute read for that. An interceptor sees ``run(op, args, attrs)`` and calls ``SLOT.below(self)``
to reach the next one, the last of which is plain dispatch. One that only casts arguments has
``only_casts = True``: backward passes and optimizers then work as if it were not there.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from tenon.engine.types import Arguments, Attrs, OpFunction, OpResult

if TYPE_CHECKING:
    from tenon.engine.op import Op


class Interceptor(Protocol):
    """An object that intercepts op calls before they are executed."""

    def run(self, op: Op, args: Arguments, attrs: Attrs) -> OpResult:
        """Handle one op call; return what the op returns."""
        ...


class Slot:
    """The stack of interceptors; ``top`` is the only attribute read per op."""

    __slots__ = ("_lock", "_stack", "execute", "pair", "parts", "single", "top")

    def __init__(self) -> None:
        self.top: Interceptor | None = None
        #: Replaced, never mutated: other threads may be reading it.
        self._stack: tuple[Interceptor, ...] = ()
        self._lock = threading.Lock()
        #: Plain dispatch, set by ``dispatch.py``: ``execute(op, args, attrs)``, the fast paths
        #: ``single(op, x, attrs)`` and ``pair(op, x, y)``, and for a composite without gradient rules
        #: ``parts(op, args, attrs)``. A running profiler wraps each of them.
        self.execute: OpFunction
        self.parts: OpFunction
        self.single: OpFunction
        self.pair: OpFunction

    def push(self, interceptor: Interceptor) -> None:
        """Put ``interceptor`` on top: it sees every op first."""
        with self._lock:
            self._stack = (*self._stack, interceptor)
            self.top = interceptor

    def sink(self, interceptor: Interceptor) -> None:
        """Put ``interceptor`` at the bottom: it sees ops as all others have rewritten them.

        Interceptors added under it later must be sunk too, so that ``below`` agrees with dispatch. One with a
        true ``lowest`` stays below all others.
        """
        with self._lock:
            under = 0
            if not getattr(interceptor, "lowest", False):
                under = sum(getattr(each, "lowest", False) for each in self._stack)
            self._stack = (*self._stack[:under], interceptor, *self._stack[under:])
            self.top = self._stack[-1]

    def pop(self, interceptor: Interceptor) -> None:
        """Remove ``interceptor`` from any position; a no-op if an interrupted call has removed it already."""
        with self._lock:
            self._stack = tuple(each for each in self._stack if each is not interceptor)
            self.top = self._stack[-1] if self._stack else None

    def holds(self, interceptor: Interceptor) -> bool:
        """Whether ``interceptor`` is in the slot."""
        return interceptor in self._stack

    def below(self, interceptor: Interceptor) -> OpFunction:
        """``run`` of the interceptor under this one, or plain dispatch.

        If its thread has removed the interceptor since this one read ``top``: that of the one on top now.
        """
        stack = self._stack
        index = stack.index(interceptor) if interceptor in stack else len(stack)
        return stack[index - 1].run if index else self.execute

    def watched(self) -> bool:
        """Whether an interceptor observes or rewrites ops, instead of only casting arguments (autocast)."""
        return self.top is not None and not all(getattr(i, "only_casts", False) for i in self._stack)


SLOT = Slot()
