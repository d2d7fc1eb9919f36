"""Convert an op graph to an ``fx.Graph`` with one ``call_function`` per op."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenon import dtypes, fx
from tenon.engine.aval import Aval, Shape
from tenon.errors import LoweringError
from tenon.export.axes import axes_of
from tenon.export.captured import CapturedGraph
from tenon.export.layers import Layers, input_of
from tenon.export.operators import operator_name, target_of
from tenon.export.signature import TensorArgument
from tenon.export.sizes import FUNCTIONS, Expression, at, linear
from tenon.export.unflattening.regions import Region
from tenon.graph.graph import Node, NodeArgument, Ref
from tenon.kernels.meta import META
from tenon.random.draws import Draw, resized
from tenon.tensors.tensor import Tensor

#: Ops whose sizes are those that code asks for; see ``graph/shape_requests.py``.
_METHODS = frozenset({"reshape", "view", "split", "index"})


@dataclass(frozen=True, slots=True)
class PythonGraph:
    """An ``fx.Graph``, and the names of its placeholders or attributes by label."""

    graph: fx.Graph
    names: Mapping[str, str]
    #: The nodes of the graph's outputs, and of the values written into state and arguments, by its label.
    outputs: list[fx.Node]
    writes: dict[str, fx.Node]


def python_graph(
    graph: CapturedGraph,
    *,
    lifted: bool,
    layers: Layers | None = None,
    arguments: Sequence[str] = (),
    classes: Mapping[str, str] | None = None,
) -> PythonGraph:
    """Return ``graph`` as an ``fx.Graph`` without its output node.

    State is a placeholder each if ``lifted``, as in ``ExportedProgram.graph_module``, else an attribute of
    the module. With ``layers``, their calls are calls of modules, and reshapes, splits and slices are methods
    of tensors, which let pruning give other sizes. ``arguments`` names all leaves of the arguments; those
    that are plain values are then placeholders of a lifted graph. ``classes`` has the class of each module by
    its path, for ``meta``.
    """
    if graph.scalars:
        raise LoweringError(
            "a training step reads numbers that change from step to step, for which torch.export has no "
            "form. Save it with tenon.export.save."
        )
    return Writer(graph, lifted, layers, arguments, classes or {}).written()


def attribute_name(label: str) -> str:
    """Return the name of the placeholder or attribute for a label: ``p_layers_0_weight``."""
    return re.sub(r"\W", "_", label)


class Writer:
    """Writes the nodes of an op graph as those of an ``fx.Graph``."""

    def __init__(
        self,
        graph: CapturedGraph,
        lifted: bool,
        layers: Layers | None,
        arguments: Sequence[str] = (),
        classes: Mapping[str, str] | None = None,
    ) -> None:
        self.source, self.lifted, self.layers = graph, lifted, layers
        self.arguments, self.classes = arguments, classes or {}
        self.graph = fx.Graph()
        self.values: dict[Ref, fx.Node] = {}
        self.symbols: dict[str, fx.Node] = {}
        self.names: dict[str, str] = {}
        self.paths = state_paths(graph)
        #: How often each function was called so far.
        self.counts: dict[str, int] = {}

    def written(self) -> PythonGraph:
        """Return the graph and what its nodes stand for."""
        states = [node for node in self.source.nodes if node.value is not None and node.kind != "scalar"]
        if self.lifted:
            states.sort(key=lambda node: node.kind == "constant")  # after the parameters and buffers
            for node in states:
                self.values[node.out()] = self._placeholder(node)
        self._place_arguments()
        first, live = self._regions()
        if not self.lifted:
            for node in states:
                used = node in live or node.kind != "constant"
                if used and (self.layers is None or node.label not in self.layers.labels):
                    own = self.graph.get_attr(self.paths[node])
                    self.values[node.out()] = self._valued(own, node.avals[0])
        self._read_sizes()
        for node in self.source.calls:
            for region in first.get(node, ()):
                self._call_region(region)
            if node in live:
                self._call(self.source.with_sizes(node), node)
        outputs = [self.values[ref] for ref in self.source.outputs]
        writes = {w.target.label: self.values[w.value] for w in self.source.writes}
        return PythonGraph(self.graph, self.names, outputs, writes)

    def _regions(self) -> tuple[dict[Node, list[Region]], set[Node]]:
        """Return the calls of layers, by the node in whose place they are made, and the other nodes."""
        if self.layers is None or not self.layers.regions:
            return {}, {*self.source.nodes}
        order = {node: number for number, node in enumerate(self.source.nodes)}
        given: dict[Ref, Region] = {}
        first: dict[Node, list[Region]] = {}
        for region in self.layers.regions:
            given.update(dict.fromkeys(region.match.outputs, region))
            node = min((ref.node for ref in region.match.outputs), key=order.__getitem__)
            first.setdefault(node, []).append(region)
        live: set[Node] = set()

        def need(refs: Iterable[Ref]) -> None:
            for ref in refs:
                if ref in given:
                    need(given[ref].match.arguments)
                else:
                    live.add(ref.node)

        need(self.source.roots())
        inside = {node for region in self.layers.regions for node in region.match.nodes.values()}
        for node in reversed(self.source.nodes):
            if node in live or (node.effect and node not in inside):
                live.add(node)
                need(node.refs)
        return first, live

    def _call_region(self, region: Region) -> None:
        """Write the call of a layer that consists of several ops."""
        args, kwargs = region.arguments(self.values.__getitem__)
        call = self.graph.call_module(region.path, args, kwargs)
        self._describe(call, next(iter(region.match.outputs)).node)
        for ref, place in region.places().items():
            item = call
            for key in place:
                item = self.graph.call_function(operator.getitem, (item, key))
            self.values[ref] = self._valued(item, ref.aval)

    def _read_sizes(self) -> None:
        """Add the nodes that read the size of each symbol."""
        axes = axes_of(self.source)
        known = (
            (a, axis, size) for a in self.source.arguments for axis, size in axes.get(a.label, {}).items()
        )
        for argument, axis, size in sorted(known, key=lambda each: each[2].function != "symbol"):
            form = linear(size)
            if form is None or form[0] in self.symbols:
                continue
            name, factor, shift = form
            read = self.graph.call_method("size", (self.values[argument.out()], axis))
            read.meta["val"] = number = argument.avals[0].shape[axis]
            if shift:
                read = self.graph.call_function(operator.sub, (read, shift))
                read.meta["val"] = number = number - shift
            if factor > 1:
                read = self.graph.call_function(operator.floordiv, (read, factor))
                read.meta["val"] = number // factor
            self.symbols[name] = read

    def _place_arguments(self) -> None:
        """Add a placeholder for each argument, in order; for plain values if they have names."""
        tensors = iter(self.source.arguments)
        for index, argument in enumerate(self.source.signature.arguments):
            if isinstance(argument, TensorArgument):
                node = next(tensors)
                self.values[node.out()] = self._placeholder(node)
            elif self.lifted and index < len(self.arguments):
                made = self.graph.placeholder(attribute_name(self.arguments[index]))
                made.meta["val"] = argument
                self.names[self.arguments[index]] = made.name

    def _placeholder(self, node: Node) -> fx.Node:
        role = self.source.signature.states.get(node.label)
        prefix = {"parameter": "p_", "buffer": "b_", None: ""}.get(role, "c_")
        if node.kind == "constant":
            prefix = "c_"
        path = self.paths.get(node, node.label)
        made = self._valued(self.graph.placeholder(prefix + attribute_name(path)), node.avals[0])
        self.names[path] = made.name
        return made

    def _valued(self, made: fx.Node, aval: Aval) -> fx.Node:
        """Note the shape and dtype of the value, as a tensor without data."""
        made.meta["val"] = Tensor.make(aval, META)
        return made

    def _call(self, sized: Node, node: Node) -> None:
        call = self._layer_or_method(sized, node)
        if call is None:
            args = tuple(self._argument(a) for a in sized.args)
            attrs = {name: self._argument(value) for name, value in sized.attrs.items()}
            name = operator_name(node)
            call = self.graph.create_node("call_function", target_of(node), args, attrs, name)
        self._describe(call, node)
        visible = node.op.outputs or len(node.avals)
        if node.op.outputs == 1:
            self.values[node.out()] = self._valued(call, node.avals[0])
            return
        call.meta["val"] = tuple(Tensor.make(aval, META) for aval in node.avals[:visible])
        for index in range(min(visible, len(node.avals))):
            item = self.graph.call_function(operator.getitem, (call, index))
            self.values[node.out(index)] = self._valued(item, node.avals[index])

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

    def _describe(self, made: fx.Node, node: Node) -> None:
        """Note which module, which line and which function the call comes from."""
        function = operator_name(node)
        number = self.counts[function] = self.counts.get(function, 0) + 1
        made.meta["torch_fn"] = (f"{function}_{number}", f"function.{function}")
        path, places = "", {}
        for part in ["", *node.module.split(".")] if node.module else [""]:
            path = f"{path}.{part}".strip(".")
            places[path] = (path, self.classes.get(path, ""))
        made.meta["nn_module_stack"] = places
        if node.where:
            file, _, line = node.where.rpartition(":")
            made.meta["stack_trace"] = f'  File "{file}", line {line}'

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
        if isinstance(value, Draw):
            return self._draw(value)
        return value

    def _draw(self, draw: Draw, stored: fx.Node | None = None) -> Draw | fx.Node:
        """Return a draw, or the node that computes it if its shape or numbers follow from sizes.

        ``stored`` is a node that reads it, at the sizes of the example.
        """
        sizes = {name: each.example for name, each in self.source.symbols.items()}
        shape = tuple(at(size, sizes) for size in draw.shape)
        numbers = tuple((name, n.at(sizes) if isinstance(n, Expression) else n) for name, n in draw.arguments)
        example = resized(draw, shape, numbers)
        own = example if stored is None else stored
        if example == draw:
            return own
        given = (own, self._argument(draw.shape), self._argument(draw.arguments))
        return self.graph.call_function(resized, given)

    def _size(self, size: Expression) -> fx.Node:
        if size.function == "symbol":
            return self._symbol(str(size.args[0]))
        parts = tuple(self._size(a) if isinstance(a, Expression) else a for a in size.args)
        computed = self.graph.call_function(FUNCTIONS[size.function][0], parts)
        computed.meta["val"] = size.at({name: each.example for name, each in self.source.symbols.items()})
        return computed

    def _symbol(self, name: str) -> fx.Node:
        return self.symbols[name]


def _with_inferred(before: Shape, after: Shape, shape: tuple[Any, ...]) -> tuple[Any, ...]:  # or fx nodes
    """Return ``shape`` with -1 for an axis into which others are merged, so that they may get smaller."""
    start = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    rest = len(after) - start - 1
    merged = len(before) > len(after) and before[len(before) - rest :] == after[start + 1 :]
    return (*shape[:start], -1, *shape[start + 1 :]) if merged and all(after) else shape


def state_paths(graph: CapturedGraph) -> dict[Node, str]:
    """Return the path at which a module of the graph holds each state and constant."""
    paths: dict[Node, str] = {}
    taken = {node.label for node in graph.inputs}
    number = 0
    for node in graph.nodes:
        if node.kind == "input" and node.value is not None:
            paths[node] = node.label
        elif node.kind == "constant":
            while f"lifted_tensor_{number}" in taken:
                number += 1
            paths[node] = f"lifted_tensor_{number}"
            number += 1
    return paths
