"""The calls of layers that consist of several ops, as ``Regions`` of a captured graph.

A region may be written as one call of its layer: nothing outside reads what is computed inside of it from the
layer's parameters, but for its results. Sums and moves of the layer's arguments may be read elsewhere too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from tenon.engine.types import Nested
from tenon.errors import TenonError
from tenon.export.capture import capture
from tenon.export.captured import CapturedGraph
from tenon.export.signature import Leaf, Result
from tenon.export.unflattening.composites import SIGNS, Example, candidates
from tenon.export.unflattening.templates import Match, Search, holds
from tenon.graph.graph import Node, Ref
from tenon.nn.module import Module
from tenon.tensors.creation.create import wrap
from tenon.tensors.pytree import tree_flatten, tree_unflatten
from tenon.tensors.tensor import Tensor

#: Gives a layer the parameters of these nodes, by their names in it.
Fill: TypeAlias = Callable[[Module, Mapping[str, Node]], None]


class Form:
    """The structure of a call's arguments: which leaves are tensors, and which are the same tensor."""

    def __init__(self, example: Example) -> None:
        leaves, self.spec = tree_flatten(example)
        self.leaves = leaves
        #: The tensors, each once.
        self.tensors: list[Tensor] = []
        #: For each leaf its number among them; None for a plain value.
        self.numbers: list[int | None] = []
        for leaf in leaves:
            known = next((i for i, each in enumerate(self.tensors) if each is leaf), None)
            if known is None and isinstance(leaf, Tensor):
                known = len(self.tensors)
                self.tensors.append(leaf)
            self.numbers.append(known)

    def filled(self, values: Sequence[Leaf]) -> Example:
        """Return the arguments with these values as the tensors."""
        pairs = zip(self.leaves, self.numbers, strict=True)
        leaves = [leaf if number is None else values[number] for leaf, number in pairs]
        args, kwargs = tree_unflatten(leaves, self.spec)
        return tuple(args), dict(kwargs)

    def key(self) -> tuple[object, ...]:
        """Return what a template depends on, as text and numbers."""
        shapes = [(tuple(x.shape), str(x.dtype)) for x in self.tensors]
        plain = [repr(leaf) for leaf, n in zip(self.leaves, self.numbers, strict=True) if n is None]
        return str(shapes), str(plain), str(self.numbers), str(self.spec)


class _Call(Module):
    """Calls a layer on distinct tensors, as arguments of the form."""

    def __init__(self, layer: Module, form: Form) -> None:
        super().__init__()
        self.layer = layer
        self.form = form

    def forward(self, *tensors: Tensor) -> Nested:
        args, kwargs = self.form.filled(tensors)
        result: Nested = self.layer(*args, **kwargs)
        return result


@dataclass(frozen=True, slots=True)
class Region:
    """A call of the layer at ``path``."""

    path: str
    match: Match
    form: Form

    def arguments(self, value: Callable[[Ref], Leaf]) -> Example:
        """Return the arguments of the call, ``value`` of each value of the graph."""
        return self.form.filled([value(ref) for ref in self.match.arguments])

    def places(self) -> dict[Ref, tuple[int | str, ...]]:
        """Return, for each result in the graph, its place in what the layer returns: () for all of it."""
        signature = self.match.template.signature
        numbers = [each.index if isinstance(each, Result) else None for each in signature.returned]
        found: dict[int, tuple[int | str, ...]] = {}

        def walk(tree: Nested, place: tuple[int | str, ...]) -> None:
            if isinstance(tree, tuple | list):
                for index, each in enumerate(tree):
                    walk(each, (*place, index))
            elif tree is not None and (number := numbers[tree]) is not None:
                found[number] = place

        leaves = [None if number is None else position for position, number in enumerate(numbers)]
        walk(tree_unflatten(leaves, signature.out_spec), ())
        return {ref: found[number] for ref, number in self.match.outputs.items()}


class Regions:
    """The regions of ``graph``; ``fill`` gives a layer its parameters."""

    def __init__(self, graph: CapturedGraph, fill: Fill) -> None:
        self.graph, self._fill = graph, fill
        self.layers: dict[str, Module] = {}
        self.regions: list[Region] = []
        #: The nodes of the layers' parameters.
        self.parameters: set[Node] = set()
        self._users: dict[Node, list[Node]] = {}
        for node in graph.calls:
            for owner in dict.fromkeys(ref.node for ref in node.refs):
                self._users.setdefault(owner, []).append(node)
        self._order = {node: number for number, node in enumerate(graph.nodes)}
        self._visible = {ref.node for ref in graph.roots()} | {write.target for write in graph.writes}
        self._templates: dict[object, CapturedGraph | None] = {}
        self._resized: CapturedGraph | None = None
        kinds = graph.signature.states
        known = {node.label: node for node in graph.states if kinds[node.label] == "parameter"}
        for label in known:
            path, _, name = label.rpartition(".")
            if path and name in SIGNS and path not in self.layers:
                own = {n[len(path) + 1 :]: node for n, node in known.items() if n.startswith(f"{path}.")}
                self._find(path, name, own)

    def _find(self, path: str, sign: str, own: dict[str, Node]) -> None:
        """Add the layer at ``path`` if all calls that read its parameters are calls of it."""
        read = {user for node in own.values() for user in self._users.get(node, ())}
        if not read or self._visible & {*own.values()}:
            return
        for layer, examples in candidates(sign, own, self._users):
            names = [name for name, _ in layer.named_parameters()]
            if {*names} != {*own}:
                continue
            self._fill(layer, own)
            matches: list[Region] = []
            missing = {*read}
            for form in map(Form, examples):
                for match in self._matches(layer, form, own):
                    new = missing & {*match.nodes.values()}
                    if new and self._can_be_replaced(match, own):
                        matches.append(Region(path, match, form))
                        missing -= new
                if not missing:
                    break
            if not missing:
                self.layers[path] = layer
                self.regions += matches
                self.parameters.update(own.values())
                return

    def _matches(self, layer: Module, form: Form, own: Mapping[str, Node]) -> list[Match]:
        template = self._template(layer, form)
        if template is None or {*own} != {node.label for node in template.states}:
            return []
        found = Search(template, own, self._users).matches()
        if not self.graph.symbols:
            return list(found)
        return [match for match in found if self._holds_at_other_sizes(layer, form, match, own)]

    def _template(self, layer: Module, form: Form) -> CapturedGraph | None:
        """Return the graph of ``layer`` alone; None if it does not take such arguments."""
        options = {k: v for k, v in vars(layer).items() if isinstance(v, bool | int | float | str | tuple)}
        shapes = [(name, tuple(p.shape), str(p.dtype)) for name, p in layer.named_parameters()]
        key = (type(layer), str(options), str(shapes), *form.key())
        if key not in self._templates:
            self._templates[key] = _captured(layer, form)
        return self._templates[key]

    def _can_be_replaced(self, match: Match, own: Mapping[str, Node]) -> bool:
        """Whether a match can be replaced by a call of the layer."""
        inside = {*match.nodes.values()}
        from_parameters = {*own.values()}
        for node in (n for n in self.graph.nodes if n in inside):
            if any(ref.node in from_parameters for ref in node.refs):
                from_parameters.add(node)
        for node in inside & from_parameters:
            others = [user for user in self._users.get(node, ()) if user not in inside]
            reads = {ref for user in others for ref in user.refs if ref.node is node}
            reads |= {ref for ref in self.graph.roots() if ref.node is node}
            if not reads <= match.outputs.keys():
                return False
        first = min(self._order[ref.node] for ref in match.outputs)
        return all(self._order[ref.node] < first for ref in match.arguments)

    def _holds_at_other_sizes(self, layer: Module, form: Form, match: Match, own: Mapping[str, Node]) -> bool:
        if self._resized is None:
            sizes = {
                name: each.least if each.example == each.most else each.example + 1
                for name, each in self.graph.symbols.items()
            }
            self._resized = self.graph.at(**sizes)
        positions = dict(zip(self.graph.nodes, self._resized.nodes, strict=True))
        tensors: dict[Ref, Tensor] = {}
        for ref in match.arguments:
            aval = positions[ref.node].avals[ref.index]
            tensors[ref] = wrap(np.zeros(aval.shape, aval.dtype), device="cpu")
        resized = Form(form.filled([tensors[ref] for ref in match.arguments]))
        template = self._template(layer, resized) if resized.numbers == form.numbers else None
        return template is not None and holds(match, template, own, positions)


def _captured(layer: Module, form: Form) -> CapturedGraph | None:
    call = _Call(layer, form)
    call.train(layer.training)
    try:
        graph = capture(call, *form.tensors)
    except TenonError:
        return None
    for node in graph.states:
        node.label = node.label.removeprefix("layer.")
    kinds = {label.removeprefix("layer."): kind for label, kind in graph.signature.states.items()}
    graph.signature = replace(graph.signature, states=kinds)
    return graph
