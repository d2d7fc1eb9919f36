"""torch's ``torch.fx``: programs are not traced into a graph that Python code can rewrite.

``wrap``, which only tells torch's tracer to leave a function whole, returns the function. The classes are
there to be named in ``isinstance`` and in annotations; making one, and ``symbolic_trace``, is refused with
what does their work here: ``tenon.compile`` records a call, forward hooks see what a layer gives.
"""

from __future__ import annotations

from typing import NoReturn, TypeVar

from tenon.errors import UnsupportedError

T = TypeVar("T")

__all__ = [
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "Tracer",
    "Transformer",
    "symbolic_trace",
    "wrap",
]


def wrap(fn_or_name: T) -> T:
    """``fn_or_name``: no tracer looks into functions, so none has to be told to leave one whole."""
    return fn_or_name


def symbolic_trace(root: object, concrete_args: object = None) -> NoReturn:
    """Refused."""
    _refuse(f"symbolic_trace({getattr(root, '__name__', type(root).__name__)})")


def _refuse(name: str) -> NoReturn:
    raise UnsupportedError(
        f"torch.fx.{name}: programs are not traced into graphs of nodes here. tenon.compile records a call"
        " and makes it faster; a forward hook gives what a layer returns; tenon.summary lists layers."
    )


class _Absent:
    """What nothing is an instance of."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        _refuse(type(self).__name__)


class Graph(_Absent):
    """A traced program."""


class Node(_Absent):
    """One operation of a traced program."""


class Proxy(_Absent):
    """What stands for a value while a program is traced."""


class GraphModule(_Absent):
    """A module made from a traced program."""


class Tracer(_Absent):
    """What traces a module."""


class Interpreter(_Absent):
    """What runs a traced program node by node."""


class Transformer(Interpreter):
    """What rewrites a traced program."""


def get_proxy_mode() -> None:
    """None: nothing traces (``torch.fx.experimental.proxy_tensor``)."""
