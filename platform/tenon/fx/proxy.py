"""``Proxy``: represents a value while a program is traced, and records operations on it as nodes.

Operators and attributes of a Proxy, and functions of tensors that receive one (``__torch_function__``),
become nodes of the tracer's graph. ``TracerBase`` is the interface of tracers for proxies;
``_symbolic_trace.py`` has the standard tracer.
"""

from __future__ import annotations

import copy
import operator
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

from tenon.fx import bytecode
from tenon.fx.arguments import Nested, aggregate
from tenon.fx.names import public_name
from tenon.fx.node import Node
from tenon.fx.operators import OPERATOR_FORMATS, REFLECTED
from tenon.fx.presence import PROXIES
from tenon.fx.scopes import Scope, ScopeContextManager
from tenon.fx.tracer_base import GraphAppendingTracer, Traced, TraceError, TracerBase, assert_fn
from tenon.tensors.tensor import Tensor

__all__ = [
    "Attribute",
    "GraphAppendingTracer",
    "ParameterProxy",
    "Proxy",
    "Scope",
    "ScopeContextManager",
    "TraceError",
    "TracerBase",
    "assert_fn",
]


class Proxy(Traced):
    """A value that is not known yet; see the module's docstring.

    >>> from tenon.fx import Graph
    >>> graph = Graph()
    >>> x = Proxy(graph.placeholder("x"))
    >>> _ = graph.output(((x + 1).relu() * 2).node)
    >>> [node.name for node in graph.nodes]
    ['x', 'add', 'relu', 'mul', 'output']
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node
        PROXIES.track(self)

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        # Not a node yet: if it is called, it becomes a method call.
        if k in ("node", "tracer"):  # while it is copied
            raise AttributeError(k)
        return Attribute(self, k)

    def __getstate__(self) -> dict[str, Any]:  # of any type
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:  # of any type
        self.__dict__ = state
        PROXIES.track(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:  # copies by id
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__setstate__({key: copy.deepcopy(value, memo) for key, value in self.__dict__.items()})
        return copied

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:  # of any types
        """Record a call."""
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:  # of proxies
        count = bytecode.unpacked_count(sys._getframe(1))
        if count is not None:
            return (self[k] for k in range(count))  # type: ignore[index]  # operators are added below
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts and bytecode.is_assertion(sys._getframe(1)):
            self.tracer.create_proxy("call_function", assert_fn, (self,), {})
            return True
        return self.tracer.to_bool(self)

    def keys(self) -> Any:  # a Proxy
        """The keys of a dictionary, traced."""
        return self.tracer.keys(self)

    def __len__(self) -> NoReturn:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be"
            " recorded, please call"
            " tenon.fx.wrap('len') at module scope"
        )

    @classmethod
    def __torch_function__(
        cls,
        orig_method: Any,  # a function of tensors
        types: Any,  # classes
        args: tuple[Any, ...] = (),  # of any types
        kwargs: dict[str, Any] | None = None,  # of any types
    ) -> Proxy:
        kwargs = kwargs or {}
        tracers: dict[TracerBase, None] = {}

        def find(leaf: Nested) -> Nested:
            if isinstance(leaf, Proxy):
                tracers[leaf.tracer] = None
            return leaf

        aggregate((args, kwargs), find)
        if len(tracers) > 1:
            raise RuntimeError(
                f"Found multiple different tracers {list(tracers)} while trying to trace operations"
                f" {orig_method}:"
                " its operands are values of two traced programs."
            )
        tracer = next(iter(tracers))
        name = public_name(orig_method) or ""
        if name.startswith("tenon.Tensor."):
            return tracer.create_proxy("call_method", name.rpartition(".")[2], args, kwargs)
        return tracer.create_proxy("call_function", orig_method, args, kwargs)


class MetaProxy(Proxy):
    """A Proxy for a tensor whose shape and dtype are known."""

    def __init__(self, node: Node, tracer: TracerBase | None = None, fake_mode: object = None) -> None:
        super().__init__(node, tracer)
        self.fake_mode = fake_mode

    def __repr__(self) -> str:
        return f"MetaProxy({self.node.name})"


class Attribute(Proxy):
    """An attribute of a Proxy: its node is made when it is used as a value, and not if it is called."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root = root
        self.attr = attr
        self.tracer = root.tracer
        self._node: Node | None = None
        PROXIES.track(self)

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node that reads the attribute."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:  # of any types
        """Record a call."""
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A Proxy for a parameter: its shape, size and number of axes are known while the program is traced."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Tensor) -> None:
        super().__init__(node, tracer)
        self.param = param
        self.name = name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:  # a Size
        """The parameter's shape."""
        return self.param.shape

    @property
    def ndim(self) -> int:
        """The parameter's number of axes."""
        return self.param.ndim

    def size(self, dim: int | None = None) -> Any:  # a Size or an int
        """The parameter's shape, or its size along an axis."""
        return self.param.size() if dim is None else self.param.size(dim)

    def dim(self) -> int:
        """The parameter's number of axes."""
        return self.param.dim()

    def numel(self) -> int:
        """The parameter's number of elements."""
        return self.param.numel()

    def nelement(self) -> int:
        """The parameter's number of elements."""
        return self.param.nelement()


def _add_operator(function: Any) -> None:  # a function of the module operator
    def method(*args: Any, **kwargs: Any) -> Proxy:  # of any types
        tracer: TracerBase = args[0].tracer
        return tracer.create_proxy("call_function", function, args, kwargs)

    method.__name__ = f"__{function.__name__.strip('_')}__"
    setattr(Proxy, method.__name__, method)


def _add_reflected_operator(function: Any) -> None:  # a function of the module operator
    def method(self: Proxy, other: Any) -> Proxy:  # of any type
        return self.tracer.create_proxy("call_function", function, (other, self), {})

    method.__name__ = f"__r{function.__name__.strip('_')}__"
    setattr(Proxy, method.__name__, method)


for _function in (*OPERATOR_FORMATS, operator.abs):
    _add_operator(_function)
for _function in REFLECTED:
    _add_reflected_operator(_function)

TracerBase.proxy_class = Proxy
