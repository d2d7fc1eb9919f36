"""``FakeTensorProp``: propagate shapes without computing, on tensors of the device ``meta``."""

from __future__ import annotations

from typing import Any

from tenon.fx.graph_module import GraphModule
from tenon.fx.interpreter import Interpreter
from tenon.fx.node import Node, Target, map_aggregate
from tenon.fx.passes.shape_prop import _extract_tensor_metadata
from tenon.nn.functional_call import functional_call
from tenon.nn.module import Module
from tenon.tensors.tensor import Tensor

__all__ = ["FakeTensorProp"]


class FakeTensorProp(Interpreter):
    """Executes a graph on tensors without memory and stores each node's result in ``meta["val"]``.

    Tensors on the device ``meta`` take the role of PyTorch's fake tensors; ``mode`` is ignored.

    >>> import tenon
    >>> traced = tenon.fx.symbolic_trace(tenon.nn.Linear(3, 2))
    >>> FakeTensorProp(traced).propagate(tenon.ones(4, 3)).device
    device(type='meta')
    """

    def __init__(self, module: GraphModule, mode: object = None) -> None:
        super().__init__(module)

    def run_node(self, n: Node) -> Any:  # of any type
        """Execute one node."""
        result = super().run_node(n)
        n.meta["val"] = result
        if isinstance(result, Tensor):
            n.meta["tensor_meta"] = _extract_tensor_metadata(result)
        return result

    def get_attr(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # as it is
        """Return an attribute, without memory if it is a tensor."""
        return map_aggregate(super().get_attr(target, args, kwargs), _without_memory)

    # of any type
    def call_module(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a module with parameters and buffers without memory."""
        module: Module = self.fetch_attr(str(target))
        state = {
            name: _without_memory(t) for name, t in [*module.named_parameters(), *module.named_buffers()]
        }
        return functional_call(module, state, args, kwargs)

    def propagate(self, *args: object) -> Any:  # a result of any type
        """Execute the graph on copies of ``args`` without memory."""
        return self.propagate_dont_convert_inputs(*(_without_memory(a) for a in args))

    def propagate_dont_convert_inputs(self, *args: object) -> Any:  # a result of any type
        """Execute the graph on ``args``, which are meta tensors already."""
        return super().run(*args)


def _without_memory(value: Any) -> Any:  # a leaf of any type
    return value.to("meta") if isinstance(value, Tensor) else value
