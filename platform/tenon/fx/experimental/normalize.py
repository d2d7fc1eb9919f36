"""Copies of graphs with calls in one form: all arguments by name, or operators in place of functions."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from tenon.fx.experimental.schema_type_annotation import AnnotateTypesWithSchema
from tenon.fx.graph_module import GraphModule
from tenon.fx.interpreter import Transformer
from tenon.fx.node import Node, Target, map_aggregate
from tenon.fx.operator_schemas import create_type_hint, normalize_function, normalize_module
from tenon.fx.proxy import Proxy

#: The public functions, as programs call them.
_PUBLIC: Any = sys.modules["tenon"]


class NormalizeArgs(Transformer):
    """Copies a graph with the arguments of functions and layers by name, and with defaults filled in.

    ``normalize_to_only_use_kwargs=False`` leaves arguments by position where the function takes them so.
    Calls that match several signatures are copied unchanged; run ``ShapeProp`` before, so that types decide.

    >>> import tenon
    >>> traced = tenon.fx.symbolic_trace(tenon.nn.Sequential(tenon.nn.ReLU()))
    >>> [node.kwargs for node in NormalizeArgs(traced).transform().graph.nodes if node.op == "call_module"]
    [{'input': input_1}]
    """

    def __init__(self, module: GraphModule, normalize_to_only_use_kwargs: bool = True) -> None:
        super().__init__(module)
        self.node_map: dict[Proxy, Node] = {}
        self.normalize_to_only_use_kwargs = normalize_to_only_use_kwargs

    def run_node(self, n: Node) -> Any:  # a proxy, or what the output returns
        """Copy one node."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)

        def kind(arg: Any) -> Any:  # a leaf; its type
            return arg.meta.get("type") if isinstance(arg, Node) else type(arg)

        if n.op == "call_function":
            arg_types = tuple(create_type_hint(each) for each in map_aggregate(n.args, kind))
            kwarg_types = {
                key: create_type_hint(map_aggregate(value, kind)) for key, value in n.kwargs.items()
            }
            out = self.call_function(n.target, args, kwargs, arg_types, kwarg_types)
        else:
            out = super().run_node(n)
        if n.op != "output":
            self.node_map[out] = n
            out.node.meta = dict(n.meta)
            out.node.type = n.type
        return out

    def call_function(
        self,
        target: Target,
        args: tuple[Any, ...],  # of any type
        kwargs: dict[str, Any],  # of any type
        arg_types: tuple[Any, ...] | None = None,  # of any type
        kwarg_types: dict[str, Any] | None = None,  # of any type
    ) -> Proxy:
        """Copy the call of a function."""
        function: Any = target  # of any type
        normalized = normalize_function(
            function, args, kwargs, arg_types, kwarg_types, self.normalize_to_only_use_kwargs
        )
        if normalized is None:
            return super().call_function(target, args, kwargs)
        return self.tracer.create_proxy("call_function", target, normalized.args, dict(normalized.kwargs))

    # of any type
    def call_module(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy:
        """Copy the call of a module."""
        normalized = normalize_module(
            self.module, str(target), args, kwargs, self.normalize_to_only_use_kwargs
        )
        if normalized is None:
            return super().call_module(target, args, kwargs)
        return super().call_module(target, normalized.args, dict(normalized.kwargs))


class NormalizeOperators(AnnotateTypesWithSchema):
    """Copies a graph with Python's operators in place of functions: ``x + y`` for ``torch.add(x, y)``.

    >>> import tenon
    >>> traced = tenon.fx.symbolic_trace(lambda x: tenon.add(x, 1))
    >>> [node.target.__name__ for node in NormalizeOperators(traced).transform().graph.nodes if node.args[1:]]
    ['add']
    """

    # of any type
    binary_magic_method_remap: ClassVar[dict[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
        _PUBLIC.add: operator.add,
        _PUBLIC.mul: operator.mul,
        _PUBLIC.sub: operator.sub,
        _PUBLIC.div: operator.truediv,
        _PUBLIC.floor_divide: operator.floordiv,
        _PUBLIC.remainder: operator.mod,
        _PUBLIC.eq: operator.eq,
        _PUBLIC.ne: operator.ne,
        _PUBLIC.lt: operator.lt,
        _PUBLIC.le: operator.le,
        _PUBLIC.gt: operator.gt,
        _PUBLIC.ge: operator.ge,
    }

    # of any type
    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy:
        """Copy the call of a function, as an operator if it is one."""
        if callable(target) and target in self.binary_magic_method_remap and len(args) == 2 and not kwargs:
            return super().call_function(self.binary_magic_method_remap[target], args, {})
        return super().call_function(target, args, kwargs)
