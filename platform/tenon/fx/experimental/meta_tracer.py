"""A tracer that knows the shapes of all tensors: branches on sizes are followed, for arguments of given
shapes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tenon.device import get_default_device
from tenon.fx._symbolic_trace import Tracer
from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node, Target, map_aggregate
from tenon.fx.proxy import Proxy
from tenon.nn.module import Module
from tenon.tensors.size import Size
from tenon.tensors.tensor import Tensor

__all__ = ["MetaProxy", "MetaTracer", "proxys_to_metas", "symbolic_trace"]


class MetaProxy(Proxy):
    """A proxy with a tensor on the device ``meta`` that has its shape and dtype, if those are known."""

    def install_tensor_meta(self, tensor_meta: object) -> None:
        """Set the tensor on the device ``meta``."""
        self.__dict__["_tensor_meta"] = tensor_meta

    def _known(self) -> Tensor | None:
        metadata = self.__dict__.get("_tensor_meta")
        return metadata if isinstance(metadata, Tensor) else None

    def size(self, dim: int | None = None) -> Any:  # a size, a number, or a proxy
        """Return the size, or that of one dimension."""
        known = self._known()
        if known is not None:
            return known.size() if dim is None else known.size(dim)
        return self.tracer.create_proxy("call_method", "size", (self,) if dim is None else (self, dim), {})

    def dim(self) -> Any:  # a number, or a proxy
        """Return the number of dimensions."""
        known = self._known()
        return self.tracer.create_proxy("call_method", "dim", (self,), {}) if known is None else known.dim()

    @property
    def shape(self) -> Size | Any:  # a proxy where it is unknown
        """The size."""
        return self.size()

    @property
    def dtype(self) -> Any:  # a dtype, or a proxy
        """The dtype."""
        known = self._known()
        if known is None:
            return self.tracer.create_proxy("call_function", getattr, (self, "dtype"), {})
        return known.dtype

    @property
    def device(self) -> Any:  # a device, or a proxy
        """The device of the program's parameters; without any, the default."""
        if self._known() is None:
            return self.tracer.create_proxy("call_function", getattr, (self, "device"), {})
        parameters = getattr(getattr(self.tracer, "root", None), "parameters", None)
        first = next(iter(parameters()), None) if parameters is not None else None
        return get_default_device() if first is None else first.device


def proxys_to_metas(v: Any) -> Any:  # an argument of any type
    """Return the meta tensor of a proxy; any other value unchanged."""
    if not isinstance(v, MetaProxy):
        return v
    if "_tensor_meta" not in v.__dict__:
        raise KeyError(f"the shape of {v.node.name} is not known")
    return v.__dict__["_tensor_meta"]


def _without_memory(v: Any) -> Any:  # an argument of any type
    return v.to("meta") if isinstance(v, Tensor) else proxys_to_metas(v)


class MetaTracer(Tracer):
    """Traces a program with known shapes of arguments: ``meta_args`` has a tensor for each, by name.

    >>> import tenon
    >>> def program(x):
    ...     return x.relu() if x.shape[0] < 3 else x.tanh()
    >>> symbolic_trace(program, {"x": tenon.empty(5, device="meta")}).code.count("relu")
    0
    """

    _computing = False

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],  # of any type
        kwargs: dict[str, Any],  # of any type
        name: str | None = None,
        type_expr: Any = None,  # an annotation
        proxy_factory_fn: Callable[[Node], Any] | None = None,  # a proxy of any class
    ) -> Proxy:
        """Add a node, and compute the shape of its result."""
        proxy = super().create_proxy(kind, target, args, kwargs, name, type_expr, proxy_factory_fn)
        if not isinstance(proxy, MetaProxy):
            return proxy
        if kind == "placeholder":
            if target in self.meta_args:
                proxy.install_tensor_meta(self.meta_args[str(target)])
            return proxy
        try:
            known = map_aggregate((args, kwargs), _without_memory)
        except KeyError:  # of an argument: then that of the result is not known either
            return proxy
        self._computing = True
        try:
            proxy.install_tensor_meta(self._result(kind, target, *known))
        finally:
            self._computing = False
        return proxy

    def _result(self, kind: str, target: Any, args: Any, kwargs: Any) -> Any:  # as what the node calls
        """Compute a node on meta tensors."""
        kwargs = {key: "meta" if key == "device" else value for key, value in kwargs.items()}
        if kind == "call_function":
            return target(*args, **kwargs)
        if kind == "call_method":
            return getattr(args[0], target)(*args[1:], **kwargs)
        if kind == "call_module":
            module = copy.deepcopy(self.root.get_submodule(target)).to("meta")
            return module.forward(*args, **kwargs)
        if kind == "get_attr":
            value: Any = self.root  # an attribute of any type
            for part in target.split("."):
                value = getattr(value, part)
            return value.to("meta") if isinstance(value, Tensor) else value
        return None

    def call_module(
        self,
        m: Module,
        forward: Callable[..., Any],  # a function of tensors
        args: tuple[Any, ...],  # of any type
        kwargs: dict[str, Any],  # of any type
    ) -> Any:  # as the module returns
        """Record the call of a module, unless a shape is being computed."""
        if self._computing:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def proxy(self, node: Node) -> MetaProxy:
        """Return the proxy of a node."""
        return MetaProxy(node, self)

    def trace(  # type: ignore[override]
        self,
        root: Module | Callable[..., Any],  # a function of tensors
        meta_args: Any = None,  # tensors by the names of arguments
        concrete_args: dict[str, Any] | None = None,  # of any type
    ) -> Graph:
        """Return the graph of ``root``."""
        self.meta_args: dict[str, Tensor] = meta_args or {}
        return super().trace(root, concrete_args)


def symbolic_trace(
    root: Module | Callable[..., Any],  # a function of tensors
    meta_args: dict[str, Tensor] | None = None,
    concrete_args: dict[str, Any] | None = None,  # of any type
) -> GraphModule:
    """Return ``root`` traced for arguments with the shapes of ``meta_args``."""
    tracer = MetaTracer()
    graph = tracer.trace(root, meta_args, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
