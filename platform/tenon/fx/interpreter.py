"""``Interpreter`` runs a graph node by node, ``Transformer`` runs it on proxies, which creates a new graph.

Subclasses override the execution of a kind of node: a profiler overrides ``run_node``, a rewriter
``call_function``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from tenon.fx import traceback as fx_traceback
from tenon.fx._symbolic_trace import Tracer
from tenon.fx.arguments import Named
from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Argument, Node, Target, map_aggregate, map_arg
from tenon.fx.presence import PROXIES
from tenon.fx.proxy import Proxy
from tenon.nn.module import Module

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs the nodes of a module's graph in order; ``env`` holds their values as long as they are needed.

    ``garbage_collect_values=False`` keeps all values; ``graph`` runs another graph on the module's
    attributes.

    >>> import tenon
    >>> from tenon.fx import symbolic_trace
    >>> class Names(Interpreter):
    ...     def run_node(self, n):
    ...         print(n.name)
    ...         return super().run_node(n)
    >>> result = Names(symbolic_trace(lambda x: tenon.relu(x) + 1)).run(tenon.ones(2))
    x
    relu
    add
    output
    """

    def __init__(
        self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None
    ) -> None:
        self.module = module
        self.submodules = dict(module.named_modules())
        selected: Any = graph if graph is not None else getattr(module, "graph", None)  # a Graph
        if not isinstance(selected, Graph):
            raise AssertionError(f"{type(module).__name__} has no graph: pass a GraphModule, or graph=.")
        self.graph: Graph = selected
        self.env: dict[Node, Any] = {}  # values of any type
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.args_iter: Iterator[Any] = iter(())  # of any type
        self.user_to_last_uses: dict[Node, list[Node]] = {}
        if garbage_collect_values:
            seen: set[Node] = set()
            for node in reversed(self.graph.nodes):
                for used in node.all_input_nodes:
                    if used not in seen:
                        seen.add(used)
                        self.user_to_last_uses.setdefault(node, []).append(used)

    def run(
        self,
        *args: Any,  # of any types
        initial_env: dict[Node, Any] | None = None,  # of any types
        enable_io_processing: bool = True,
    ) -> Any:  # of any type
        """Run the graph on ``args`` and return its result.

        Nodes in ``initial_env`` are not run; their values are read from it. ``enable_io_processing``:
        arguments and result are nested as those of the generated function.
        """
        self.env = dict(initial_env) if initial_env is not None else {}
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    _add_place(error, node)
                raise
            for used in self.user_to_last_uses.get(node, ()):
                self.env.pop(used, None)
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:  # of any types
        """Run the graph on the values in ``args_list``, which is emptied so that values can be freed
        early."""
        placeholders = self.graph.find_nodes(op="placeholder")
        if len(args_list) != len(placeholders):
            kind = "extra" if len(args_list) > len(placeholders) else "missing"
            raise RuntimeError(
                f"Interpreter.boxed_run got {kind} arguments: {len(args_list)} for {len(placeholders)}"
                " placeholders"
            )
        env = dict(zip(placeholders, args_list, strict=True))
        args_list.clear()
        return self.run(initial_env=env, enable_io_processing=False)

    def run_node(self, n: Node) -> Any:  # of any type
        """Run one node and return its value."""
        with fx_traceback.set_current_meta(n):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            method: Any = getattr(self, n.op)  # a method of this class, by the kind of node
            return method(n.target, args, kwargs)

    # One method for each kind of node.

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: Named) -> Any:  # of any types
        """Return the next argument, or the default; ``*args`` takes the rest."""
        if str(target).startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: Named) -> Any:  # of any types
        """Return an attribute of the module."""
        return self.fetch_attr(str(target))

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: Named) -> Any:  # of any types
        """Call a function."""
        assert callable(target)
        return target(*args, **kwargs)

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: Named) -> Any:  # of any types
        """Call a method of ``args[0]``."""
        owner, *rest = args
        return getattr(owner, str(target))(*rest, **kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: Named) -> Any:  # of any types
        """Call a submodule."""
        return self.fetch_attr(str(target))(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: Named) -> Any:  # of any types
        """Return the result."""
        return args[0]

    # Helpers of these methods.

    def fetch_attr(self, target: str) -> Any:  # of any type
        """Return the attribute of the module at a path; RuntimeError if it is not there."""
        value: Any = self.module  # then what it holds
        names = target.split(".")
        for depth, name in enumerate(names):
            if not hasattr(value, name):
                raise RuntimeError(
                    f"Node referenced nonexistent target {'.'.join(names[: depth + 1])} of"
                    f" {type(value).__name__}"
                )
            value = getattr(value, name)
        return value

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:  # of any types
        """Return the arguments of a node with the values of the nodes in them."""
        args = self.map_nodes_to_values(n.args, n)
        kwargs = self.map_nodes_to_values(n.kwargs, n)
        return args, kwargs

    def map_nodes_to_values(self, args: Argument, n: Node) -> Argument:
        """Return ``args`` with the values of the nodes in them."""

        def value_of(used: Node) -> Any:  # of any type
            if used not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {used}! Run Graph.lint() to diagnose such issues"
                )
            return self.env[used]

        return map_arg(args, value_of)


def _add_place(error: Exception, node: Node) -> None:
    """Add the failing node to the message of ``error``."""
    text = f"\n\nWhile executing {node.format_node()}"
    if node.stack_trace:
        text += f"\nOriginal traceback:\n{node.stack_trace}"
    if error.args and isinstance(error.args[0], str):
        error.args = (error.args[0] + text, *error.args[1:])
    else:
        error.add_note(text.strip())


class _TransformerTracer(Tracer):
    """Records what a Transformer does: every module is a leaf, paths are the targets of nodes."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        return True


class Transformer(Interpreter):
    """Creates a new graph by running one on proxies; overridden methods return the replacement of a node.

    >>> import tenon
    >>> from tenon.fx import symbolic_trace
    >>> class Swap(Transformer):
    ...     def call_function(self, target, args, kwargs):
    ...         return super().call_function(tenon.neg if target is tenon.relu else target, args, kwargs)
    >>> print(Swap(symbolic_trace(lambda x: tenon.relu(x))).transform().code.strip())
    def forward(self, x):
        neg = tenon.neg(x);  x = None
        return neg
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer = _TransformerTracer(self.new_graph)
        self.tracer.root = module

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: Named) -> Proxy:  # of any types
        """Return the Proxy of a new argument."""
        default = args[0] if args else inspect.Signature.empty
        proxy: Proxy = self.tracer.proxy(self.new_graph.placeholder(str(target), default_value=default))
        return proxy

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: Named) -> Proxy:  # of any types
        """Return the Proxy of an attribute."""
        proxy: Proxy = self.tracer.create_proxy("get_attr", target, args, kwargs)
        return proxy

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: Named) -> Any:  # of any types
        """Record the call of a submodule."""
        return self.tracer.call_module(self.fetch_attr(str(target)), self._no_forward, args, kwargs)

    @staticmethod
    def _no_forward(*args: object, **kwargs: object) -> None:
        raise AssertionError("a Transformer's tracer takes every module for a leaf")

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: Named) -> Any:  # of any types
        """Record the call of a function."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """Return a GraphModule of the new graph."""
        with fx_traceback.preserve_node_meta(), PROXIES.rerouted():
            result = super().run(enable_io_processing=False)
        if result is not None:

            def node_of(value: Any) -> Argument:  # of any type
                return value.node if isinstance(value, Proxy) else value

            output = self.new_graph.output(map_aggregate(result, node_of))
            before = self.graph.output_node()
            output.type, output.meta = before.type, dict(before.meta)
        assert isinstance(self.module, GraphModule)
        return GraphModule(self.module, self.new_graph, type(self.module).__name__)
