"""``WATCHERS``: callbacks by which upper layers observe events other than ops.

Every field is None without a listener, and then costs one attribute read. Code that sets a field restores
the previous value. Objects that observe or rewrite ops are in ``interceptor.SLOT`` instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from tenon.engine.types import Arguments, Attrs, Gradient, OpFunction

if TYPE_CHECKING:
    from tenon.engine.op import Op
    from tenon.engine.plans import EngineBackend
    from tenon.engine.sweep import Visit
    from tenon.engine.tape import Node

F = TypeVar("F", bound=OpFunction)

_NOTHING = nullcontext()


class Watchers:
    """One field per event; None if there is no listener."""

    __slots__ = (
        "_listeners", "around_creation", "around_kernel", "around_visit", "changes", "differentiated",
        "recorder", "requested_sizes", "span", "taped",
    )  # fmt: skip

    #: ``taped(node)``: a node was recorded and its output is set. ``add`` and ``remove`` assign it.
    taped: Callable[[Node], None] | None
    #: ``differentiated(node, gradients)``: a backward pass computed the gradients of a node's inputs.
    differentiated: Callable[[Node, Sequence[Gradient]], None] | None
    #: ``around_visit(visit)`` returns a wrapper of ``visit(node, gradient)`` of the sweep.
    around_visit: Callable[[Visit], Visit] | None
    #: ``span(name, phase)``: a context around work that is not an op: a backward pass, a wait for data.
    span: Callable[[str, str], AbstractContextManager[object]] | None
    #: ``around_kernel(backend, op, kernel)`` returns a wrapper of a kernel that works in place.
    around_kernel: Callable[[EngineBackend, Op, OpFunction], OpFunction] | None
    #: ``around_creation(name, make, args, options)`` replaces ``make(*args, **options)`` where arrays are
    #: created without an op: from data, by shape, at random.
    around_creation: Callable[[str, OpFunction, Arguments, Attrs], Any] | None
    #: ``requested_sizes(kind, shape, sizes)`` returns replacements for the sizes passed to ``reshape`` and
    #: similar ops (kind "shape"), ``split`` ("cut"), ``chunk`` ("chunks": a count; the result is sizes)
    #: or ``x[a:b]`` ("slice", with ``(size, axis, rank)`` as the shape).
    requested_sizes: Callable[[str, tuple[int, ...], Any], Any] | None
    #: ``changes(op, x, args, attrs)`` is called before an in-place op, or function, without grad; true if it
    #: performed it.
    changes: Callable[[Any, Any, Arguments, Attrs], bool] | None
    #: Is notified of arrays created, read by Python, or written outside of ops, and of attributes of modules
    #: that are assigned, by methods of these names (``made``, ``reading``, ``verifying``, ``writing``,
    #: ``wrote``, ``copied``, ``exchanged``, ``host_draw``, ``gradient_read``, ``gradient_set``,
    #: ``assigning``); ``unsupported(what)`` raises for what it cannot record.
    recorder: Any  # its class belongs to an upper layer

    def __init__(self) -> None:
        self._listeners: tuple[Callable[[Node], None], ...] = ()
        self.taped = self.differentiated = self.around_visit = self.span = self.around_kernel = None
        self.around_creation = self.requested_sizes = self.changes = self.recorder = None

    def add(self, listener: Callable[[Node], None]) -> None:
        """Call ``listener`` with every node recorded from now on; only once per node if added twice."""
        self._listeners = (*self._listeners, listener)
        self.taped = self._notify

    def remove(self, listener: Callable[[Node], None]) -> None:
        """Undo one ``add``."""
        remaining = list(self._listeners)
        remaining.remove(listener)
        self._listeners = tuple(remaining)
        if not remaining:
            self.taped = None

    def _notify(self, node: Node) -> None:
        for listener in dict.fromkeys(self._listeners):
            listener(node)

    def spanning(self, name: str, phase: str) -> AbstractContextManager[object]:
        """The context of ``span``; a null context without a listener."""
        return _NOTHING if self.span is None else self.span(name, phase)


WATCHERS = Watchers()


def watched_creation(make: F) -> F:
    """Decorate ``make``, which creates arrays without an op, to be observed by ``around_creation``."""

    @functools.wraps(make)
    def watched(*args: Any, **options: Any) -> Any:  # those of ``make``
        if WATCHERS.around_creation is None:
            return make(*args, **options)
        return WATCHERS.around_creation(make.__name__, make, args, options)

    return watched  # type: ignore[return-value]
