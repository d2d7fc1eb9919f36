"""Find the layers of a captured graph: calls whose weights are those of one layer of ``tenon.nn``.

Next: ``program_module.py`` makes a module with them, which quantization and pruning know how to change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tenon.export.captured import CapturedGraph
from tenon.export.unflattening.regions import Region, Regions
from tenon.graph.graph import Node, NodeArgument, Ref
from tenon.nn.layers.conv import Conv1d, Conv2d, Conv3d
from tenon.nn.layers.embedding import Embedding
from tenon.nn.layers.linear import Linear
from tenon.nn.layers.norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.tensors.creation.factories import zeros

#: Makes the layer of a call, without its tensors; None if no layer computes the call.
Maker: TypeAlias = Callable[[Node], Module | None]


def _linear(node: Node) -> Module:
    outputs, inputs = node.args[1].aval.shape
    return Linear(inputs, outputs, bias=node.args[2] is not None, device="meta")


def _convolution(node: Node) -> Module | None:
    x, weight, bias = node.args
    outputs, _, *kernel = weight.aval.shape
    kind = {1: Conv1d, 2: Conv2d, 3: Conv3d}.get(len(kernel))
    if kind is None:
        return None
    inputs = x.aval.shape[1]
    stride, padding, dilation, groups = (node.attrs[n] for n in ("stride", "padding", "dilation", "groups"))
    return kind(
        inputs, outputs, tuple(kernel), stride, padding, dilation, groups, bias is not None, device="meta"
    )


def _batch_norm(node: Node) -> Module | None:
    rank = len(node.args[0].aval.shape)
    kind = {2: BatchNorm1d, 3: BatchNorm1d, 4: BatchNorm2d, 5: BatchNorm3d}.get(rank)
    weight, bias = node.args[1:3]
    if kind is None or (weight is None) != (bias is None):
        return None
    (channels,) = node.args[3].aval.shape
    return kind(channels, node.attrs["eps"], affine=weight is not None, device="meta")


def _embedding(node: Node) -> Module:
    rows, width = node.args[0].aval.shape
    padding = node.attrs["padding_idx"]
    return Embedding(
        rows,
        width,
        padding_idx=None if padding < 0 else padding,
        scale_grad_by_freq=node.attrs["by_frequency"],
        device="meta",
    )


#: Op -> the names of its operands in the layer, "input" for what the layer is called with; and the maker.
_KINDS: Mapping[str, tuple[tuple[str, ...], Maker]] = {
    "linear": (("input", "weight", "bias"), _linear),
    "convolution": (("input", "weight", "bias"), _convolution),
    "batch_norm_inference": (("input", "weight", "bias", "running_mean", "running_var"), _batch_norm),
    "embedding": (("weight", "input"), _embedding),
}


class Layers:
    """The layers of ``graph`` by path, the path of each call that is one, and the labels of their tensors.

    A call is one if all of its weights are parameters and buffers ``path.weight``, ``path.bias`` and so on,
    which only calls of layers read. Layers with tied weights share them.
    """

    def __init__(self, graph: CapturedGraph) -> None:
        self.modules: dict[str, Module] = {}
        self.paths: dict[Node, str] = {}
        self.labels: set[str] = set()
        #: The calls of layers that consist of several ops.
        self.regions: list[Region] = []
        self._kinds = graph.signature.states
        self._names: dict[str, list[str]] = {}
        for name, label in graph.signature.aliases.items():
            self._names.setdefault(label, [label]).append(name)
        #: By node, the parameters of layers that were no ``Parameter`` in the graph.
        self._made: dict[Node, Parameter] = {}
        in_regions = self._add_regions(graph)
        calls: dict[str, list[Node]] = {}
        for node in graph.calls:
            path = None if any(ref.node in in_regions for ref in node.refs) else self._path(node)
            if path is not None:
                calls.setdefault(path, []).append(node)
        used: dict[Node, set[Node]] = {}
        for node in graph.calls:
            for ref in node.refs:
                used.setdefault(ref.node, set()).add(node)
        other = {ref.node for ref in graph.roots()} | {write.target for write in graph.writes}
        states = {
            path: {name: ref.node for name, ref in _operands(nodes[0]).items() if name != "input"}
            for path, nodes in calls.items()
            if all(_same(nodes[0], each) for each in nodes[1:])
        }
        made = {path: _KINDS[calls[path][0].name][1](calls[path][0]) for path in states}
        while True:
            found = {node for path in states if made[path] is not None for node in calls[path]}
            able = {
                path: own
                for path, own in states.items()
                if made[path] is not None and all(used[n] <= found and n not in other for n in own.values())
            }
            if len(able) == len(states):
                break
            states = able
        for path, own in states.items():
            self._add(path, made[path], calls[path], own)

    def _add_regions(self, graph: CapturedGraph) -> set[Node]:
        """Add the layers that consist of several ops; return the nodes of their parameters."""
        found = Regions(graph, self._fill)
        self.regions = found.regions
        self.modules.update(found.layers)
        self.labels |= {node.label for node in found.parameters}
        return found.parameters

    def _fill(self, module: Module, states: Mapping[str, Node]) -> None:
        """Give a layer the tensors of nodes by their names in it."""
        for path, node in states.items():
            owner, _, name = path.rpartition(".")
            holder, own = module.get_submodule(owner), node.value
            # A plain tensor in programs that were read from files.
            if name in holder._parameters and not isinstance(own, Parameter):
                own = self._made.setdefault(node, Parameter(own, own.requires_grad))
            setattr(holder, name, own)

    def _path(self, node: Node) -> str | None:
        """Return the path of the layer that ``node`` may be a call of; None if it cannot be one."""
        if node.name not in _KINDS:
            return None
        operands = _operands(node)
        x = operands.pop("input", None)
        if x is None or x.scalar or any(ref.node is x.node for ref in operands.values()):
            return None
        common: list[str] | None = None
        for name, ref in operands.items():
            label = ref.node.label
            if self._kinds.get(label) not in ("parameter", "buffer"):
                return None
            halves = [each.rpartition(".") for each in self._names.get(label, [label])]
            paths = [path for path, _, own in halves if own == name and path]
            common = paths if common is None else [path for path in common if path in paths]
        return node.module if node.module in (common or ()) else next(iter(common or ()), None)

    def _add(self, path: str, module: Module | None, nodes: list[Node], states: Mapping[str, Node]) -> None:
        if module is None:
            return
        self._fill(module, states)
        counted = module._buffers.get("num_batches_tracked")
        if counted is not None:
            module.num_batches_tracked = zeros((), dtype=counted.dtype)
        if any(t.device.type == "meta" for t in (*module.parameters(), *module.buffers())):
            return
        self.modules[path] = module.eval()
        self.paths.update(dict.fromkeys(nodes, path))
        self.labels |= {node.label for node in states.values()}


def input_of(node: Node) -> Ref:
    """Return what the layer whose call is ``node`` is called with."""
    return _operands(node)["input"]


def _operands(node: Node) -> dict[str, Ref]:
    names, _ = _KINDS[node.name]
    pairs = zip(names, node.args, strict=False)
    return {name: argument for name, argument in pairs if isinstance(argument, Ref)}


def _same(one: Node, other: Node) -> bool:
    """Whether two calls are of the same layer: equal but for what they are called with."""

    def rest(node: Node) -> list[NodeArgument]:
        given = input_of(node)
        return [None if a is given else a for a in node.args]

    ranks = {len(input_of(each).aval.shape) for each in (one, other)}
    same_rank = len(ranks) == 1 or one.name in ("linear", "embedding")
    return one.op is other.op and same_rank and one.attrs == other.attrs and rest(one) == rest(other)
