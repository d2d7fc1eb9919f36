"""Match the arguments of two calls of one function, with defaults for arguments that only one call passes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

from tenon.fx.node import Node
from tenon.ops.aten import Operator
from tenon.tensors.tensor import Tensor

#: Positional and keyword arguments.
Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]  # nested arguments


def bound_arguments(pn: Node, gn: Node) -> tuple[Arguments, Arguments]:
    """Return the arguments of two nodes that call one function, by name and with the same names where
    possible."""
    of_pattern: Arguments = (pn.args, pn.kwargs)
    of_graph: Arguments = (gn.args, gn.kwargs)
    function = _function(pn)
    if function is None:
        return of_pattern, of_graph
    try:
        signature = inspect.signature(function)
        first, second = signature.bind(*pn.args, **pn.kwargs), signature.bind(*gn.args, **gn.kwargs)
    except (TypeError, ValueError):
        return of_pattern, of_graph
    named = dict(first.arguments), dict(second.arguments)
    for these, those in (named, named[::-1]):
        for name in those.keys() - these.keys():
            these[name] = _like(signature.parameters[name].default, those[name])
    return ((), named[0]), ((), named[1])


def _function(node: Node) -> Callable[..., Any] | None:  # any function
    """Return the function whose signature has the defaults of the call ``node``; None if it is unknown."""
    if node.op == "call_method":
        return getattr(Tensor, str(node.target), None)
    if node.op != "call_function":
        return None
    target = node.target
    if not isinstance(target, Operator):
        return target if callable(target) else None
    public = sys.modules["tenon"]
    for namespace in (public, public.nn.functional, Tensor):
        function: Callable[..., Any] | None = getattr(namespace, target.name, None)  # any function
        if function is not None:
            return function
    return None


def _like(default: Any, given: Any) -> Any:  # arguments of any type
    """Return ``default`` in the form of ``given``: a number that applies to several axes is repeated."""
    if isinstance(given, (list, tuple)) and isinstance(default, (int, float)):
        return type(given)([default] * len(given))
    return default
