"""Who wants to hear of every taped op and every gradient, or records: anomaly detection, hooks on saved
values, a recorder. Nobody by default.

The tape, the sweep and a few makers of arrays read these globals, which keeps such modes free while they are
off.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

#: Called with every new node, when its output is known.
created: Callable[[Any], None] | None = None
#: Called with a node and the gradients that it gave to its inputs (arrays or tensors).
differentiated: Callable[[Any, Any], None] | None = None

#: What a profile in progress is told of; all None while there is none.
#: ``visiting(visit)``: what a sweep calls with a node and its gradient instead of ``visit``.
visiting: Callable[[Callable[[Any, Any], None]], Callable[[Any, Any], None]] | None = None
#: ``span(name, phase)``: the context in which a stretch of work runs that is no op: a wait for data, a pass.
span: Callable[[str, str], AbstractContextManager[Any]] | None = None
#: ``collective(communicator, call, perform, args)``: agrees on ``call``, then performs it.
collective: Callable[[Any, Any, Callable[..., Any], tuple[Any, ...]], Any] | None = None
#: ``kernel(backend, op, kernel)``: what is called instead of a kernel where an op changes an array in place.
kernel: Callable[[Any, Any, Callable[..., Any]], Callable[..., Any]] | None = None
#: ``making(name, make, args, options)``: what is called instead of ``make(*args, **options)`` where arrays
#: are made without an op: factories, random numbers, counts.
making: Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any] | None = None
#: Called with every program when it is bound to memory.
bound: Callable[[Any], None] | None = None

#: ``asked(kind, shape, sizes)``: what code means by the sizes that it asks ``reshape`` and its kin (kind
#: "shape"), ``split`` ("cut"), ``chunk`` ("chunks", a number; the answer are sizes) or ``x[a:b]`` ("slice",
#: for an axis: its size, which it is, of how many) for, where models compute some that were removed:
#: ``graph/shape_requests.py``.
asked: Callable[[str, tuple[int, ...], Any], Any] | None = None

#: Modules whose parameters were walked lately, where several ranks train:
#: ``distributed/messages/identity.py``.
walked: weakref.WeakSet[Any] | None = None

#: Why no compiled function may be called now; None where they may.
not_compiled: str | None = None

#: What lets tangents go on under ``no_grad``, where forward mode is at work: ``autograd/onward.py``.
onward: Any = None

#: The ``graph.recorder.Recorder`` at work, for what changes or makes arrays beside the ops.
recorder: Any = None

_listeners: tuple[Callable[[Any], None], ...] = ()


def add(listener: Callable[[Any], None]) -> None:
    """Call ``listener`` with every node from now on; a listener may be added several times and hears each
    node once."""
    global _listeners, created
    _listeners = (*_listeners, listener)
    created = _tell


def remove(listener: Callable[[Any], None]) -> None:
    """Undo one ``add``."""
    global _listeners, created
    remaining = list(_listeners)
    remaining.remove(listener)
    _listeners = tuple(remaining)
    if not _listeners:
        created = None


def _tell(node: Any) -> None:
    for listener in dict.fromkeys(_listeners):
        listener(node)


def making_shown(make: F) -> F:
    """``make``, which a profile shows by its name: it makes arrays without an op."""

    @functools.wraps(make)
    def made(*args: Any, **options: Any) -> Any:
        if making is None:
            return make(*args, **options)
        return making(make.__name__, make, args, options)

    return made  # type: ignore[return-value]


def spanning(name: str, phase: str) -> AbstractContextManager[Any]:
    """A span of that name where somebody profiles; nothing else."""
    return _NOTHING if span is None else span(name, phase)


_NOTHING = nullcontext()
