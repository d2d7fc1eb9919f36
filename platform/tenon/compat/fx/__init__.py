"""PyTorch's ``torch.fx``: programs are not traced into a graph that Python code can rewrite.

``wrap``, which tells PyTorch's tracer not to trace into a function, returns the function. The classes exist
for ``isinstance`` and annotations; their constructors and ``symbolic_trace`` raise UnsupportedError, which
names the alternatives: ``tenon.compile`` records a call, forward hooks see the output of a layer.
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
    """Return ``fn_or_name``: there is no tracer that would trace into the function."""
    return fn_or_name


def symbolic_trace(root: object, concrete_args: object = None) -> NoReturn:
    """Raise UnsupportedError."""
    _refuse(f"symbolic_trace({getattr(root, '__name__', type(root).__name__)})")


def _refuse(name: str) -> NoReturn:
    raise UnsupportedError(
        f"torch.fx.{name}: programs are not traced into graphs of nodes here. tenon.compile records a call"
        " and makes it faster; a forward hook receives the output of a layer; tenon.summary lists layers."
    )


class _Absent:
    """Base of the classes without instances."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        _refuse(type(self).__name__)


class Graph(_Absent):
    """A traced program."""


class Node(_Absent):
    """One operation of a traced program."""


class Proxy(_Absent):
    """The placeholder of a value while a program is traced."""


class GraphModule(_Absent):
    """A module of a traced program."""


class Tracer(_Absent):
    """Traces a module."""


class Interpreter(_Absent):
    """Runs a traced program node by node."""


class Transformer(Interpreter):
    """Rewrites a traced program."""


def get_proxy_mode() -> None:
    """Return None: nothing traces (``torch.fx.experimental.proxy_tensor``)."""
