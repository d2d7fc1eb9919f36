"""Handlers that receive, and may replace, the sizes with which code reshapes, splits or slices tensors.

Code that computes a size itself, such as ``width // self.heads``, still requests that size after channels
were removed from the model. A handler receives every such request before it is carried out and returns the
sizes to use instead. A request has a kind, a shape and sizes:

- ``"shape"``: ``reshape``, ``view`` and ``unflatten`` of a tensor of ``shape``, with the requested sizes;
- ``"cut"``: ``split`` of an axis of size ``shape[0]``, with the sizes of the pieces, or the size of each;
- ``"chunks"``: ``chunk`` of such an axis, with the number of chunks; the answer is the list of their sizes;
- ``"slice"``: ``narrow`` or ``x[a:b]`` of an axis, where ``shape`` is its size, its number and the rank of
  the tensor, with the slice.

Without a handler a request costs one read of a global variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from tenon.engine import scopes
from tenon.engine.watchers import WATCHERS

__all__ = [
    "Handler",
    "ShapeRequest",
    "answer",
    "even_chunks",
    "handled_by",
    "install",
    "recorded_in",
    "running_call",
]

#: Sizes, a size, a number of chunks or a slice, according to the kind of the request.
Sizes: TypeAlias = Any
#: ``handler(kind, shape, sizes)`` returns the sizes to use.
Handler: TypeAlias = Callable[[str, tuple[int, ...], Sizes], Sizes]


@dataclass(frozen=True, slots=True)
class ShapeRequest:
    """A request of a module's code in a captured run, with its place in the graph."""

    #: ``id`` of the module whose code made it.
    module: int
    #: The number of nodes in the graph at that time: a later node carries it out.
    position: int
    #: "shape", "cut", "chunks" or "slice".
    kind: str
    shape: tuple[int, ...]
    #: The requested sizes; of a slice the answer.
    asked: Sizes


_installed: Handler | None = None


def running_call() -> scopes.Place | None:
    """Return the module call that this thread is in, or None outside of modules.

    It is ``(weak reference to the outermost module, id of the innermost one, its class)``, a new object for
    every call.
    """
    return scopes.running.place


def install(handler: Handler) -> None:
    """Install ``handler`` for all requests of this process, unless one was installed before."""
    global _installed
    if _installed is None:
        _installed = handler
        if WATCHERS.requested_sizes is None:
            WATCHERS.requested_sizes = handler


def answer(kind: str, shape: tuple[int, ...], requested: Sizes) -> Sizes:
    """Pass a request to the installed handler and return its answer; without one, the request itself."""
    if _installed is not None:
        return _installed(kind, shape, requested)
    return even_chunks(shape[0], requested) if kind == "chunks" else requested


@contextmanager
def handled_by(handler: Handler) -> Iterator[None]:
    """Pass all requests in the block to ``handler``; it may call ``answer`` for the answer without it."""
    before, WATCHERS.requested_sizes = WATCHERS.requested_sizes, handler
    try:
        yield
    finally:
        WATCHERS.requested_sizes = _installed if before is None else before


@contextmanager
def recorded_in(requests: list[ShapeRequest], position: Callable[[], int]) -> Iterator[None]:
    """Append all requests of modules in the block to ``requests``; ``position()`` is that in the graph."""

    def record(kind: str, shape: tuple[int, ...], requested: Sizes) -> Sizes:
        call, answered = running_call(), answer(kind, shape, requested)
        if call is not None:
            sizes = answered if kind == "slice" else requested
            requests.append(ShapeRequest(call[1], position(), kind, shape, sizes))
        return answered

    with handled_by(record):
        yield


def even_chunks(size: int, count: int) -> list[int]:
    """Return the sizes of the chunks that ``chunk(count)`` makes of an axis of ``size``.

    >>> even_chunks(10, 4)
    [3, 3, 3, 1]
    """
    step = -(-size // count)
    return [min(step, size - start) for start in range(0, size, step)]
