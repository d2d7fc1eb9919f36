"""The way from an op graph to a Python graph: an ``fx.Graph`` with one ``call_function`` per op."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenon import dtypes, fx
from tenon.engine.aval import Shape
from tenon.errors import LoweringError
from tenon.export.captured import CapturedGraph
from tenon.export.layers import Layers, input_of
from tenon.export.sizes import FUNCTIONS, Expression
from tenon.graph.graph import Node, NodeArgument, Ref

#: Ops whose sizes are those that code asks for; see ``graph/shape_requests.py``.
_METHODS = frozenset({"reshape", "view", "split", "index"})


@dataclass(frozen=True, slots=True)
class PythonGraph:
    """An ``fx.Graph``, and the names of its placeholders or attributes by label."""

    graph: fx.Graph
    names: Mapping[str, str]
    #: The nodes of the graph's outputs, and of the values written into state, by its label.
    outputs: list[fx.Node]
    writes: dict[str, fx.Node]


def python_graph(graph: CapturedGraph, *, lifted: bool, layers: Layers | None = None) -> PythonGraph:
    """Return ``graph`` as an ``fx.Graph`` without its output node.

    State is a placeholder each if ``lifted``, as in ``ExportedProgram.graph_module``, else an attribute of
    the module. With ``layers``, their calls are calls of modules, and reshapes, splits and slices are methods
    of tensors, which let pruning give other sizes.
    """
    if graph.scalars:
        raise LoweringError(
            "a training step reads numbers that change from step to step, for which torch.export has no "
            "form. Save it with tenon.export.save."
        )
    return Writer(graph, lifted, layers).written()


def attribute_name(label: str) -> str:
    """Return the name of the placeholder or attribute for a label: ``p_layers_0_weight``."""
    return re.sub(r"\W", "_", label)


class Writer:
    """Writes the nodes of an op graph as those of an ``fx.Graph``."""

    def __init__(self, graph: CapturedGraph, lifted: bool, layers: Layers | None) -> None:
        self.source, self.lifted, self.layers = graph, lifted, layers
        self.graph = fx.Graph()
        self.values: dict[Ref, fx.Node] = {}
        self.symbols: dict[str, fx.Node] = {}
        self.names: dict[str, str] = {}

    def written(self) -> PythonGraph:
        """Return the graph and what its nodes stand for."""
        states = [node for node in self.source.nodes if node.value is not None and node.kind != "scalar"]
        if self.lifted:
            for node in states:
                self.values[node.out()] = self._placeholder(node)
        for node in self.source.arguments:
            self.values[node.out()] = self._placeholder(node)
        if not self.lifted:
            for node in states:
                if self.layers is None or node.label not in self.layers.labels:
                    self.values[node.out()] = self.graph.get_attr(state_path(self.source, node))
        for label, axes in self.source.dynamic.items():
            for axis, name in axes.items():
                if name not in self.symbols:
                    x = next(n for n in self.source.arguments if n.label == label)
                    self.symbols[name] = self.graph.call_method("size", (self.values[x.out()], axis))
        for node in self.source.calls:
            self._call(self.source.with_sizes(node), node)
        outputs = [self.values[ref] for ref in self.source.outputs]
        writes = {w.target.label: self.values[w.value] for w in self.source.writes}
        return PythonGraph(self.graph, self.names, outputs, writes)

    def _placeholder(self, node: Node) -> fx.Node:
        role = self.source.signature.states.get(node.label)
        prefix = {"parameter": "p_", "buffer": "b_", None: ""}.get(role, "c_")
        if node.kind == "constant":
            prefix = "c_"
        label = node.label or f"constant_{len(self.names)}"
        made = self.graph.placeholder(prefix + attribute_name(label))
        made.meta["val"] = node.avals[0]
        self.names[state_path(self.source, node)] = made.name
        return made

    def _call(self, sized: Node, node: Node) -> None:
        made = self._layer_or_method(sized, node)
        if made is None:
            args = tuple(self._argument(a) for a in sized.args)
            attrs = {name: self._argument(value) for name, value in sized.attrs.items()}
            made = self.graph.call_function(node.op, args, attrs)
        made.meta["nn_module_path"], made.meta["where"] = node.module, node.where
        visible = node.op.outputs or len(node.avals)
        if node.op.outputs == 1:
            made.meta["val"] = node.avals[0]
            self.values[node.out()] = made
            return
        for index in range(min(visible, len(node.avals))):
            item = self.graph.call_function(operator.getitem, (made, index))
            item.meta["val"] = node.avals[index]
            self.values[node.out(index)] = item

    def _layer_or_method(self, sized: Node, node: Node) -> fx.Node | None:
        """Write ``node`` as the call of a layer, or of a method that requests sizes; None for others."""
        if self.layers is None:
            return None
        if node in self.layers.paths:
            return self.graph.call_module(self.layers.paths[node], (self.values[input_of(node)],))
        if node.name not in _METHODS or not isinstance(node.args[0], Ref):
            return None
        x = self.values[node.args[0]]
        attrs = {name: self._argument(value) for name, value in sized.attrs.items()}
        if node.name == "split":
            return self.graph.call_method("split", (x, list(attrs["sizes"])), {"dim": attrs["axis"]})
        if node.name == "index":
            return self.graph.call_function(operator.getitem, (x, attrs["key"]))
        shape = _with_inferred(node.args[0].aval.shape, node.avals[0].shape, attrs["shape"])
        return self.graph.call_method("reshape", (x, shape))

    def _argument(self, value: NodeArgument) -> Any:  # of any type
        if value.__class__ is Ref:
            return self.values[value]
        if isinstance(value, Expression):
            return self._size(value)
        if isinstance(value, np.dtype):
            return dtypes.FROM_NUMPY[value]
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, tuple):
            return tuple(map(self._argument, value))
        if isinstance(value, list):
            return list(map(self._argument, value))
        if isinstance(value, dict):
            return {key: self._argument(each) for key, each in value.items()}
        if isinstance(value, slice):
            return slice(*(self._argument(v) for v in (value.start, value.stop, value.step)))
        return value

    def _size(self, size: Expression) -> fx.Node:
        if size.function == "symbol":
            return self._symbol(str(size.args[0]))
        parts = tuple(self._size(a) if isinstance(a, Expression) else a for a in size.args)
        return self.graph.call_function(FUNCTIONS[size.function][0], parts)

    def _symbol(self, name: str) -> fx.Node:
        return self.symbols[name]


def _with_inferred(before: Shape, after: Shape, shape: tuple[Any, ...]) -> tuple[Any, ...]:  # or fx nodes
    """Return ``shape`` with -1 for an axis into which others are merged, so that they may get smaller."""
    start = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    rest = len(after) - start - 1
    merged = len(before) > len(after) and before[len(before) - rest :] == after[start + 1 :]
    return (*shape[:start], -1, *shape[start + 1 :]) if merged and all(after) else shape


def state_path(graph: CapturedGraph, node: Node) -> str:
    """Return the path at which a module of the graph holds the state or constant ``node``."""
    if node.kind == "constant":
        return f"constants.{graph.nodes.index(node)}"
    return node.label
