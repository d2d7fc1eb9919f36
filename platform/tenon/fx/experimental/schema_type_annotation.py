"""``AnnotateTypesWithSchema``: types of nodes, from the annotations of the functions and modules that
they call."""

from __future__ import annotations

import inspect
import typing
from typing import Any

from tenon.fx.graph_module import GraphModule
from tenon.fx.interpreter import Transformer
from tenon.fx.node import Target
from tenon.fx.proxy import Proxy
from tenon.nn.module import Module
from tenon.tensors.tensor import Tensor


class AnnotateTypesWithSchema(Transformer):
    """Copies a graph with ``node.type`` set where the callee's return annotation is known.

    ``annotate_functionals``, ``annotate_modules`` and ``annotate_get_attrs`` select the kinds of nodes.

    >>> import tenon
    >>> traced = tenon.fx.symbolic_trace(tenon.nn.Sequential(tenon.nn.ReLU()))
    >>> annotated = AnnotateTypesWithSchema(traced).transform()
    >>> [node.type is tenon.Tensor for node in annotated.graph.nodes if node.op == "call_module"]
    [True]
    """

    def __init__(
        self,
        module: GraphModule,
        annotate_functionals: bool = True,
        annotate_modules: bool = True,
        annotate_get_attrs: bool = True,
    ) -> None:
        super().__init__(module)
        self.annotate_functionals = annotate_functionals
        self.annotate_modules = annotate_modules
        self.annotate_get_attrs = annotate_get_attrs

    # of any type
    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy:
        """Copy the call of a function."""
        proxy: Proxy = super().call_function(target, args, kwargs)
        if self.annotate_functionals and proxy.node.type is None:
            proxy.node.type = _returned(target)
        return proxy

    # of any type
    def call_module(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy:
        """Copy the call of a module."""
        proxy: Proxy = super().call_module(target, args, kwargs)
        if self.annotate_modules and proxy.node.type is None:
            proxy.node.type = _returned(type(self.fetch_attr(str(target))).forward)
        return proxy

    # of any type
    def get_attr(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy:
        """Copy the read of an attribute."""
        proxy: Proxy = super().get_attr(target, args, kwargs)
        value = self.fetch_attr(str(target))
        if self.annotate_get_attrs and not isinstance(value, Module) and proxy.node.type is None:
            proxy.node.type = Tensor if isinstance(value, Tensor) else type(value)
        return proxy


def _returned(function: Any) -> Any:  # any callable; an annotation
    """Return the return annotation of a function; None if it has none."""
    try:
        annotation = typing.get_type_hints(function).get("return")
    except (NameError, TypeError, AttributeError):  # annotations that only type checkers can resolve
        try:
            annotation = inspect.signature(function).return_annotation
        except (TypeError, ValueError):
            return None
        if isinstance(annotation, str):
            annotation = Tensor if annotation == "Tensor" else None
    return None if annotation in (inspect.Signature.empty, Any, None) else annotation  # of any type
