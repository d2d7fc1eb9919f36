"""``WATCHERS``: callbacks at the places where something happens beside ops, so that upper layers can see it.

Every field is None while nobody listens, and then costs one look. Whoever sets a field puts back what was
there before. What sees or rewrites the ops themselves stands in ``interceptor.SLOT`` instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_NOTHING = nullcontext()


class Watchers:
    """One field a place."""

    __slots__ = (
        "_listeners", "around_creation", "around_kernel", "around_visit", "changes", "differentiated",
        "recorder", "requested_sizes", "span", "taped",
    )  # fmt: skip

    #: ``taped(node)``: a node was added to the tape, and its output is known. ``add`` and ``remove`` set it.
    taped: Callable[[Any], None] | None
    #: ``differentiated(node, gradients)``: a backward pass computed what a node gives to its inputs.
    differentiated: Callable[[Any, Any], None] | None
    #: ``around_visit(visit)``: called with a node and its gradient instead of ``visit``.
    around_visit: Callable[[Callable[[Any, Any], None]], Callable[[Any, Any], None]] | None
    #: ``span(name, phase)``: the context of work that is no op: a backward pass, a wait for data.
    span: Callable[[str, str], AbstractContextManager[Any]] | None
    #: ``around_kernel(backend, op, kernel)``: called instead of a kernel that works in place.
    around_kernel: Callable[[Any, Any, Callable[..., Any]], Callable[..., Any]] | None
    #: ``around_creation(name, make, args, options)``: what is called instead of ``make(*args, **options)``
    #: where arrays are made without an op: from data, by shape, at random.
    around_creation: Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any] | None
    #: ``requested_sizes(kind, shape, sizes)``: what to take for the sizes that code asks of ``reshape``
    #: and its kin (kind "shape"), of ``split`` ("cut"), ``chunk`` ("chunks": their number; the answer are
    #: sizes) or ``x[a:b]`` ("slice", with ``(size, axis, axes)`` for a shape).
    requested_sizes: Callable[[str, tuple[int, ...], Any], Any] | None
    #: ``changes(op, x, args, attrs)``: asked before an in-place change without grad; true if done.
    changes: Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], bool] | None
    #: Hears of arrays that are made, read by Python, or written beside the ops, by methods of these names
    #: (``made``, ``reading``, ``writing``, ``wrote``, ``copied``, ``exchanged``, ``host_draw``,
    #: ``gradient_read``, ``gradient_set``), and refuses by ``unsupported(what)`` what it cannot follow.
    recorder: Any  # only its owner knows its class

    def __init__(self) -> None:
        self._listeners: tuple[Callable[[Any], None], ...] = ()
        self.taped = self.differentiated = self.around_visit = self.span = self.around_kernel = None
        self.around_creation = self.requested_sizes = self.changes = self.recorder = None

    def add(self, listener: Callable[[Any], None]) -> None:
        """Call ``listener`` with every node that is taped from now on, once even if it was added twice."""
        self._listeners = (*self._listeners, listener)
        self.taped = self._tell

    def remove(self, listener: Callable[[Any], None]) -> None:
        """Undo one ``add``."""
        remaining = list(self._listeners)
        remaining.remove(listener)
        self._listeners = tuple(remaining)
        if not remaining:
            self.taped = None

    def _tell(self, node: Any) -> None:
        for listener in dict.fromkeys(self._listeners):
            listener(node)

    def spanning(self, name: str, phase: str) -> AbstractContextManager[Any]:
        """The context that ``span`` gives; one that does nothing where nobody listens."""
        return _NOTHING if self.span is None else self.span(name, phase)


WATCHERS = Watchers()


def watched_creation(make: F) -> F:
    """``make``, which makes arrays without an op, called through ``around_creation`` under its own name."""

    @functools.wraps(make)
    def watched(*args: Any, **options: Any) -> Any:
        if WATCHERS.around_creation is None:
            return make(*args, **options)
        return WATCHERS.around_creation(make.__name__, make, args, options)

    return watched  # type: ignore[return-value]
