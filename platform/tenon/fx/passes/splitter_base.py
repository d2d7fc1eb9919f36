"""Split a program between an accelerator and the CPU: alternating submodules of supported and unsupported
nodes.

Derive from ``_SplitterBase``, pass it an ``OperatorSupport`` and examples, and call it. Next:
``split_utils.py`` creates the submodules.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node
from tenon.fx.passes.operator_support import OperatorSupportBase, supported_nodes
from tenon.fx.passes.shape_prop import ShapeProp
from tenon.fx.passes.split_utils import move_non_tensor_nodes_on_boundary, split_by_tags
from tenon.fx.passes.subgraphs import Subgraph
from tenon.fx.passes.tools_common import (
    CALLABLE_NODE_OPS,
    FxNetAccFusionsFinder,
    NodeSet,
    is_node_output_tensor,
)
from tenon.nn.module import Module
from tenon.tensors.autograd.grad_mode import no_grad

__all__ = [
    "FxNetAccNodesFinder",
    "FxNetSplitterInternalError",
    "SplitResult",
    "Subgraph",
    "generate_inputs_for_submodules",
]


@dataclass
class _SplitterSettingBase:
    """Options of a splitter.

    ``min_acc_module_size``: smaller submodules run on the CPU. ``skip_fusion``: nodes that pass values other
    than tensors to each other may be separated. ``allow_non_tensor``: submodules may pass values other than
    tensors. ``max_acc_splits``: the maximum number of submodules on the accelerator, -1 for no limit.
    """

    min_acc_module_size: int = 1
    skip_fusion: bool = False
    allow_non_tensor: bool = False
    max_acc_splits: int = -1
    move_non_tensor_nodes_on_boundary: bool = False


class FxNetSplitterInternalError(Exception):
    """Nodes cannot be assigned to submodules: they depend on each other, or have a tag already."""


class SplitResult(NamedTuple):
    """The split module, example inputs of each submodule, and the name prefix of submodules on the CPU."""

    split_module: GraphModule
    submodule_inputs: dict[str, Any]  # values of any types
    non_acc_submodule_prefix: str


class FxNetAccNodesFinder:
    """Finds the nodes for the accelerator: supported nodes whose inputs and outputs are tensors only.

    With ``allow_non_tensor``, all supported ones.
    """

    def __init__(
        self, module: GraphModule, operator_support: OperatorSupportBase, allow_non_tensor: bool
    ) -> None:
        self.module, self.operator_support, self.allow_non_tensor = module, operator_support, allow_non_tensor
        self.acc_nodes: NodeSet = set()

    def reduce_acc_nodes_non_tensor_input(self) -> None:
        """Remove nodes with an input from the CPU that is not a tensor, and the nodes that depend on them."""
        self._remove(
            [n for n in self.module.graph.nodes if n.op in CALLABLE_NODE_OPS and n not in self.acc_nodes],
            lambda node: list(node.users),
        )

    def reduce_acc_nodes_non_tensor_output(self) -> None:
        """Remove nodes that return a non-tensor to the CPU, and the nodes from which they receive
        non-tensors."""
        while True:
            leaking = [
                node
                for node in self.acc_nodes
                if not is_node_output_tensor(node) and any(user not in self.acc_nodes for user in node.users)
            ]
            if not leaking:
                return
            self.acc_nodes -= set(leaking)

    def _remove(self, waiting: list[Node], following: Callable[[Node], list[Node]]) -> None:
        while waiting:
            node = waiting.pop()
            if is_node_output_tensor(node):
                continue
            for other in following(node):
                if other in self.acc_nodes:
                    self.acc_nodes.remove(other)
                    waiting.append(other)

    def __call__(self) -> NodeSet:
        """Return the nodes."""
        self.acc_nodes = set(supported_nodes(self.module, self.operator_support))
        if not self.allow_non_tensor:
            self.reduce_acc_nodes_non_tensor_input()
            self.reduce_acc_nodes_non_tensor_output()
        return self.acc_nodes


def generate_inputs_for_submodules(
    # of any type
    model: Module,
    # of any type
    inputs: Sequence[Any],
    target_submodules: Iterable[str],
    deepcopy: bool = False,
) -> dict[str, Any]:  # values of any types
    """Run ``model`` on ``inputs`` and return the inputs of each of ``target_submodules``, by path."""
    received: dict[str, Any] = {}  # values of any types
    targets, handles = set(target_submodules), []

    def listener(name: str) -> Callable[[Module, tuple[Any, ...]], None]:  # of any type
        def note(module: Module, arguments: tuple[Any, ...]) -> None:  # of any type
            received[name] = copy.deepcopy(arguments) if deepcopy else arguments

        return note

    for name, module in model.named_modules():
        if name in targets:
            handles.append(module.register_forward_pre_hook(listener(name)))
    try:
        with no_grad():
            model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return received


class _SplitterBase:
    """Splits ``module``; ``sample_input`` are examples of its arguments.

    Calling it returns a module that calls ``_run_on_acc_0``, ``_run_on_cpu_1``, ... one after the other.
    """

    def __init__(
        self,
        module: GraphModule,
        sample_input: Sequence[Any],  # of any type
        operator_support: OperatorSupportBase,
        settings: _SplitterSettingBase,
        non_acc_submodule_name: str = "_run_on_cpu_",
        return_tuple: bool = False,
        nodes_finder: FxNetAccNodesFinder | None = None,
    ) -> None:
        self.module, self.settings, self.operator_support = module, settings, operator_support
        self.sample_input, self.return_tuple = sample_input, return_tuple
        self.non_acc_submodule_name, self._node_submodule_map = non_acc_submodule_name, dict[str, str]()
        ShapeProp(module).propagate(*sample_input)
        finder = nodes_finder or FxNetAccNodesFinder(module, operator_support, settings.allow_non_tensor)
        self.acc_nodes = finder()
        self.fusions: dict[Node, NodeSet] = {}
        if not settings.skip_fusion:
            self.fusions = FxNetAccFusionsFinder(module, self.acc_nodes)()
        self.deps = self.find_deps()
        self.update_deps_for_fusions()
        self.tags: list[str] = []

    def get_node_submodule_map(self) -> dict[str, str]:
        """Return the submodule that each node is in, by its name."""
        return self._node_submodule_map

    def find_deps(self) -> dict[Node, NodeSet]:
        """Return the dependencies of each node, without arguments and attributes."""
        calls = [node for node in self.module.graph.nodes if node.op in CALLABLE_NODE_OPS]
        return {node: {n for n in node.all_input_nodes if n.op in CALLABLE_NODE_OPS} for node in calls}

    def update_deps_for_fusions(self) -> None:
        """Add the dependencies of each node of a fusion group to all nodes of the group."""
        for node, group in self.fusions.items():
            self.deps[node] |= {n for member in group for n in self.deps[member]} - group

    def put_nodes_into_subgraphs(self) -> list[Subgraph]:
        """Return alternating lists of accelerator and CPU nodes, each as long as dependencies allow."""
        order = [node for node in self.module.graph.nodes if node.op in CALLABLE_NODE_OPS]
        subgraphs: list[Subgraph] = []
        done: NodeSet = set()
        acc = any(node in self.acc_nodes and not self.deps[node] for node in order)
        idle = 0
        while len(done) < len(order):
            nodes = self._take(order, done, acc)
            if nodes:
                subgraphs.append(Subgraph(is_acc=acc, nodes=nodes))
            idle = 0 if nodes else idle + 1
            if idle > 2:
                stuck = [node.name for node in order if node not in done]
                raise FxNetSplitterInternalError(f"Subgraph can't be empty: {stuck} wait for each other.")
            acc = not acc
        if self.settings.move_non_tensor_nodes_on_boundary:
            move_non_tensor_nodes_on_boundary(subgraphs)
        return subgraphs

    def _take(self, order: list[Node], done: NodeSet, acc: bool) -> list[Node]:
        """Return the nodes of one kind that depend only on ``done`` and each other, and add them to
        ``done``."""
        taken: list[Node] = []
        more = True
        while more:
            more = False
            for node in order:
                if node in done or (node in self.acc_nodes) is not acc:
                    continue
                group = self.fusions.get(node, set())
                if self.deps[node] - group <= done:
                    taken.append(node)
                    done.add(node)
                    more = True
        position = {node: k for k, node in enumerate(order)}
        return sorted(taken, key=position.__getitem__)

    def remove_small_acc_subgraphs(self, subgraphs: list[Subgraph]) -> list[Subgraph]:
        """Merge accelerator subgraphs that are too small with the CPU subgraphs around them."""
        result: list[Subgraph] = []
        for subgraph in subgraphs:
            small = subgraph.is_acc and len(subgraph.nodes) < self.settings.min_acc_module_size
            acc = subgraph.is_acc and not small
            if result and not acc and not result[-1].is_acc:
                result[-1].nodes.extend(subgraph.nodes)
            else:
                result.append(Subgraph(is_acc=acc, nodes=list(subgraph.nodes)))
        return result

    def tag(self, subgraphs: list[Subgraph]) -> None:
        """Set the tag of each node to the name of its submodule."""
        self.tags = []
        for number, subgraph in enumerate(subgraphs):
            tag = f"_run_on_acc_{number}" if subgraph.is_acc else f"{self.non_acc_submodule_name}{number}"
            self.tags.append(tag)
            for node in subgraph.nodes:
                if hasattr(node, "tag"):
                    raise FxNetSplitterInternalError(f"Node {node} was already tagged")
                tagged: Any = node  # any attribute may be set
                tagged.tag = tag
                self._node_submodule_map[node.name] = tag

    def split(self, remove_tag: bool = False) -> GraphModule:
        """Return the split module; ``remove_tag`` deletes the tags afterwards."""
        result: Any = split_by_tags(self.module, self.tags, return_tuple=self.return_tuple)  # of any type
        if remove_tag:
            for node in self.module.graph.nodes:
                if hasattr(node, "tag"):
                    del node.tag
        split: GraphModule = result
        return split

    def __call__(self) -> GraphModule:
        """Split the module."""
        subgraphs = self.remove_small_acc_subgraphs(self.put_nodes_into_subgraphs())
        parts = sum(subgraph.is_acc for subgraph in subgraphs)
        if 0 <= self.settings.max_acc_splits < parts:
            raise ValueError(
                f"Cannot fulfill max_acc_splits limit: {parts} parts for the accelerator, at most"
                f" {self.settings.max_acc_splits} are allowed. Raise min_acc_module_size or support more ops."
            )
        self.tag(subgraphs)
        return self.split()

    def generate_split_results(self) -> SplitResult:
        """Split the module, and run it to record the inputs of the submodules."""
        split = self()
        names = [name for name, _ in split.named_children()]
        inputs = generate_inputs_for_submodules(split, self.sample_input, names)
        return SplitResult(split, inputs, self.non_acc_submodule_name)
