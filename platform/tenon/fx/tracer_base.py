"""``TracerBase``: creates the nodes of a graph, and proxies for their values.

``_symbolic_trace.py`` has the standard tracer.
"""

from __future__ import annotations

import collections
import copy
import enum
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from types import CodeType
from typing import Any, ClassVar

from tenon.device import Device
from tenon.dtypes import dtype
from tenon.fx import stack_traces
from tenon.fx import traceback as fx_traceback
from tenon.fx.arguments import Nested, aggregate, is_named_tuple
from tenon.fx.graph import Graph
from tenon.fx.node import Argument, Node, Target
from tenon.fx.operator_schemas import check_for_mutable_operation
from tenon.fx.scopes import Scope
from tenon.ops.aten import Operator
from tenon.tensors.layout import layout
from tenon.tensors.memory_formats import memory_format
from tenon.tensors.tensor import Tensor

#: Types of values that are stored unchanged as arguments of nodes.
base_types = (
    str, int, float, bool, complex, bytes, dtype, Tensor, Device, memory_format, layout, Operator, enum.Enum,
    type(None), type(...),
)  # fmt: skip
#: Metadata that new nodes get from the node that an interpreter runs.
_COPIED_META = ("nn_module_stack", "source_fn_stack", "stack_trace", "custom", "from_node", "original_aten")
#: Code that calls traced programs: their stack traces begin after its frames.
STARTS: set[CodeType] = set()


class TraceError(ValueError):
    """A program needs a value that is not known while it is traced."""


def assert_fn(x: object) -> None:
    """Assert ``x``: the function that a traced ``assert`` calls."""
    assert x


class Traced:
    """Base class of objects that represent the value of a node, such as ``Proxy``."""

    node: Node
    tracer: TracerBase


class TracerBase:
    """Creates nodes and proxies for the graph ``self.graph``."""

    #: The class of objects that represent values.
    proxy_class: ClassVar[type[Any]]  # Proxy, which is defined on top of this class
    graph: Graph
    record_stack_traces: bool = False
    #: Reject functions that write into their arguments.
    check_mutable_operations: bool = False
    #: Record ``assert value`` instead of raising TraceError for the truth of a Proxy.
    trace_asserts: bool = False
    #: Create proxies of buffers when they are read, not when they are used.
    proxy_buffer_attributes: bool = False
    #: The name of the method that is traced.
    traced_func_name: str = "forward"
    scope: Scope
    module_stack: collections.OrderedDict[str, Any]  # paths and classes of modules
    node_name_to_scope: dict[str, tuple[str, Any]]  # the same

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any | None = None,  # an annotation
    ) -> Node:
        """Insert a node; override it to reject nodes or to attach metadata to them."""
        if kind == "call_function" and self.check_mutable_operations:
            assert callable(target)
            check_for_mutable_operation(target, args, kwargs)
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        self.node_name_to_scope[node.name] = (self.scope.module_path, self.scope.module_type)
        if fx_traceback.has_preserved_node_meta():
            current = fx_traceback.get_current_meta()
            node.meta.update({key: current[key] for key in _COPIED_META if key in current})
        elif self.module_stack:
            node.meta["nn_module_stack"] = copy.copy(self.module_stack)
        if self.record_stack_traces and not node.stack_trace:
            frames = stack_traces.frames_of_program(STARTS)
            if frames:
                node.stack_trace = stack_traces.format_frames(frames)
        return node

    def proxy(self, node: Node) -> Any:  # a Proxy
        """Return the Proxy of a node."""
        return self.proxy_class(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],  # of any types
        kwargs: dict[str, Any],  # of any types
        name: str | None = None,
        type_expr: Any | None = None,  # an annotation
        proxy_factory_fn: Callable[[Node], Traced] | None = None,
    ) -> Any:  # a Proxy
        """Insert a node whose arguments may have proxies in them, and return its Proxy."""
        args_, kwargs_ = self.create_arg(args), self.create_arg(kwargs)
        node = self.create_node(kind, target, args_, kwargs_, name, type_expr)
        return self.proxy(node) if proxy_factory_fn is None else proxy_factory_fn(node)

    def create_arg(self, a: Any) -> Argument:  # of any type
        """Return ``a`` as an argument of a node: proxies become nodes; NotImplementedError for unknown types.

        An object with ``__fx_create_arg__(tracer)`` converts itself.
        """
        if isinstance(a, Traced):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            items = [self.create_arg(item) for item in a]
            return type(a)(*items) if is_named_tuple(a) else tuple(items)
        if isinstance(a, list):
            return [self.create_arg(item) for item in a]
        if isinstance(a, dict):
            return self._dictionary(a)
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, range):
            return range(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, base_types):
            return a
        if is_dataclass(a) and not isinstance(a, type):
            named = {field.name: self.create_arg(getattr(a, field.name)) for field in fields(a)}
            return self.create_node("call_function", type(a), (), named)
        raise NotImplementedError(
            f"argument of type: {type(a)}: define a method __fx_create_arg__(self, tracer) that returns"
            " a node"
        )

    def _dictionary(self, a: dict[Any, Any]) -> Argument:  # of any types
        arguments = {}
        for key, value in a.items():
            known = self.create_arg(key)

            def refuse(leaf: Nested, key: object = key) -> Nested:
                if isinstance(leaf, Node):
                    raise RuntimeError(
                        f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {key}"
                    )
                return leaf

            aggregate(known, refuse)
            arguments[known] = self.create_arg(value)
        return arguments

    def to_bool(self, obj: Traced) -> bool:
        """Called where a program evaluates the truth of a Proxy; raises TraceError, as it is not known."""
        raise TraceError(
            f"symbolically traced variables cannot be used as inputs to control flow: {obj}{_place()}"
        )

    def iter(self, obj: Traced) -> Iterator[Any]:  # of proxies
        """Called where a program iterates over a Proxy; TraceError, as its length is not known."""
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or"
            " as a *args or"
            f" **kwargs function argument: {obj}{_place()}. Index it, unpack it into names (a, b ="
            " value), or wrap"
            " the function that loops (tenon.fx.wrap)."
        )

    def keys(self, obj: Traced) -> Any:  # a Proxy
        """Called for ``proxy.keys()``, also by ``**proxy``."""
        return self.create_proxy("call_method", "keys", (obj,), {})


def _place() -> str:
    """Return the current source line of the program, for an error message."""
    frames = stack_traces.frames_of_program(STARTS)
    if not frames:
        return ""
    return f" (at {frames[-1].f_code.co_filename}:{frames[-1].f_lineno})"


class GraphAppendingTracer(TracerBase):
    """Appends nodes to an existing graph: the tracer of a Proxy that is created directly."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.scope = Scope("", None)
        self.module_stack = collections.OrderedDict()
        self.node_name_to_scope = {}
