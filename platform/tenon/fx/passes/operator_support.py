"""Rules that state which nodes a backend can run, by their targets and the dtypes of their inputs."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tenon.dtypes import dtype as Dtype
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node
from tenon.fx.passes.shape_prop import TensorMetadata
from tenon.fx.passes.tools_common import CALLABLE_NODE_OPS, get_node_target, own_name
from tenon.nn.module import Module

__all__ = ["OpSupports", "OperatorSupport", "OperatorSupportBase", "any_chain", "chain", "create_op_support"]

#: The dtypes that an operator supports for each positional input and each keyword input; None: all.
TargetTypeName: TypeAlias = str
SupportedArgumentDTypes: TypeAlias = tuple[Sequence[Sequence[Dtype]], dict[str, Sequence[Dtype]]] | None
SupportDict: TypeAlias = Mapping[TargetTypeName, SupportedArgumentDTypes]
IsNodeSupported: TypeAlias = Callable[[Mapping[str, Module], Node], bool]


class OperatorSupportBase(abc.ABC):
    """Base class: states whether a backend can run a node."""

    @abc.abstractmethod
    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        """Whether ``node`` can run; ``submodules`` are the modules that nodes call, by their paths."""
        raise NotImplementedError


class OperatorSupport(OperatorSupportBase):
    """Supports the entries of a table: names of functions, methods or classes of modules, with dtypes of
    inputs.

    Dtypes are those stored by ``ShapeProp``.
    """

    _support_dict: SupportDict

    def __init__(self, support_dict: SupportDict | None = None) -> None:
        self._support_dict = {own_name(name): dtypes for name, dtypes in (support_dict or {}).items()}

    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        """Whether the table has the target of ``node`` with the dtypes of its inputs."""
        if node.op not in CALLABLE_NODE_OPS:
            return True
        target = get_node_target(submodules, node)
        if target not in self._support_dict:
            return False
        supported = self._support_dict[target]
        if supported is None:
            return True
        by_position, by_keyword = supported
        for index, dtypes in enumerate(by_position):
            value = node.args[index] if index < len(node.args) else None
            if isinstance(value, Node) and _get_arg_dtype(value) not in dtypes:
                return False
        for name, dtypes in by_keyword.items():
            value = node.kwargs.get(name)
            if isinstance(value, Node) and _get_arg_dtype(value) not in dtypes:
                return False
        return True


def create_op_support(is_node_supported: IsNodeSupported) -> OperatorSupportBase:
    """Return an OperatorSupport whose ``is_node_supported`` calls a function."""

    class FunctionalOperatorSupport(OperatorSupportBase):
        """Calls the function that ``create_op_support`` received."""

        def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
            return is_node_supported(submodules, node)

    return FunctionalOperatorSupport()


def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Return an OperatorSupport for nodes that all of ``op_support`` support."""
    return create_op_support(
        lambda submodules, node: all(each.is_node_supported(submodules, node) for each in op_support)
    )


def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Return an OperatorSupport for nodes that at least one of ``op_support`` supports."""
    return create_op_support(
        lambda submodules, node: any(each.is_node_supported(submodules, node) for each in op_support)
    )


class OpSupports:
    """Common rules, to be combined by ``chain``."""

    @classmethod
    def decline_if_input_dtype(cls, dtype: Dtype) -> OperatorSupportBase:
        """Return an OperatorSupport for nodes without an input of ``dtype``."""

        def supported(submodules: Mapping[str, Module], node: Node) -> bool:
            return all(_get_arg_dtype(arg) != dtype for arg in node.all_input_nodes)

        return create_op_support(supported)

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: set[str]) -> OperatorSupportBase:
        """Return an OperatorSupport for nodes whose names are not in ``disallow_set``."""
        return create_op_support(lambda submodules, node: node.name not in disallow_set)


def _get_arg_dtype(arg: Node) -> Dtype | None:
    """Return the dtype of the tensor that ``arg`` returns; None for other arguments."""
    if not isinstance(arg, Node):
        raise AssertionError(f"Expected a Node, got {type(arg).__name__}")
    meta = arg.meta.get("tensor_meta")
    return meta.dtype if isinstance(meta, TensorMetadata) else arg.meta.get("type")


def supported_nodes(module: GraphModule, support: OperatorSupportBase) -> list[Node]:
    """Return the nodes of ``module`` that call something and are supported, in order."""
    submodules = dict(module.named_modules())
    return [
        node
        for node in module.graph.nodes
        if node.op in CALLABLE_NODE_OPS and support.is_node_supported(submodules, node)
    ]
