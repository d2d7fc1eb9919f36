"""Find calls of a layer in a captured graph, by matching the graph of the layer captured alone.

A match is exact: same ops, attributes, shapes and constants, the layer's own parameters. So a match computes
what the layer computes, whichever code made the calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tenon.engine.aval import aval_of
from tenon.export.captured import CapturedGraph
from tenon.graph.graph import Node, NodeArgument, Ref

#: Node of a template -> the node of the graph that matches it.
Found = dict[Node, Node]


@dataclass(frozen=True, slots=True)
class Match:
    """One call of a layer: which calls of the graph it consists of, and what they read and return."""

    template: CapturedGraph
    nodes: Mapping[Node, Node]
    #: The values of the graph that the layer is called with, in the order of the template's arguments.
    arguments: tuple[Ref, ...]
    #: Value of the graph -> number of the template's output that it is. Outputs that the graph lacks, as
    #: nothing reads them, are left out.
    outputs: Mapping[Ref, int]


class Search:
    """Finds one template in one graph."""

    def __init__(
        self, template: CapturedGraph, states: Mapping[str, Node], users: Mapping[Node, Sequence[Node]]
    ) -> None:
        self.template, self.states, self.users = template, states, users
        #: The calls of the template that read a parameter, in order.
        self.anchors = [node for node in template.calls if any(ref.node.label in states for ref in node.refs)]

    def matches(self) -> Iterator[Match]:
        """Yield the calls of the layer; a node may be in several."""
        if not self.anchors:
            return
        anchor = self.anchors[0]
        weight = next(ref.node for ref in anchor.refs if ref.node.label in self.states)
        for candidate in self.users.get(self.states[weight.label], ()):
            found = self._unified(anchor, candidate, {}, {})
            if found is not None:
                yield from self._extended(0, *found, absent=frozenset())

    def _extended(
        self, position: int, nodes: Found, given: dict[Node, Ref], absent: frozenset[Node]
    ) -> Iterator[Match]:
        calls = self.template.calls
        while position < len(calls) and calls[position] in nodes:
            position += 1
        if position == len(calls):
            yield from self._complete(nodes, given)
            return
        node = calls[position]
        operands = [ref.node for ref in node.refs]
        if any(each in absent for each in operands):
            yield from self._extended(position + 1, nodes, given, absent | {node})
            return
        known = [nodes.get(each) or self.states.get(each.label) for each in operands]
        readers = [[*self.users.get(each, ())] for each in known if each is not None]
        if not readers:  # it reads arguments only: found as the operand of another, or not at all
            yield from self._extended(position + 1, nodes, given, absent)
            return
        candidates = dict.fromkeys(sorted(readers, key=len)[0])
        extended = False
        for candidate in candidates:
            found = self._unified(node, candidate, nodes, given)
            if found is not None:
                extended = True
                yield from self._extended(position + 1, *found, absent=absent)
        if not extended:
            yield from self._extended(position + 1, nodes, given, absent | {node})

    def _complete(self, nodes: Found, given: Mapping[Node, Ref]) -> Iterator[Match]:
        arguments = self.template.arguments
        if any(node not in given for node in arguments):
            return
        outputs = {
            Ref(nodes[ref.node], ref.index): number
            for number, ref in enumerate(self.template.outputs)
            if ref.node in nodes
        }
        if not outputs:
            return
        needed = {ref.node for number, ref in enumerate(self.template.outputs) if number in outputs.values()}
        for node in reversed(self.template.nodes):
            if node in needed:
                needed.update(ref.node for ref in node.refs)
        own = {node: nodes[node] for node in self.template.calls if node in needed}
        yield Match(self.template, own, tuple(given[node] for node in arguments), outputs)

    def _unified(
        self, own: Node, other: Node, nodes: Found, given: dict[Node, Ref]
    ) -> tuple[Found, dict[Node, Ref]] | None:
        """Return ``nodes`` and ``given`` with what follows if ``own`` is ``other``; None if it cannot be."""
        nodes, given = dict(nodes), dict(given)
        return (nodes, given) if self._unify(own, other, nodes, given) else None

    def _unify(self, own: Node, other: Node, nodes: Found, given: dict[Node, Ref]) -> bool:
        if own in nodes:
            return nodes[own] is other
        same = own.op is other.op and own.avals == other.avals and len(own.args) == len(other.args)
        if other.kind != "call" or not same or not same_value(own.attrs, other.attrs):
            return False
        nodes[own] = other
        return all(self._same_argument(a, b, nodes, given) for a, b in zip(own.args, other.args, strict=True))

    def _same_argument(
        self, own: NodeArgument, other: NodeArgument, nodes: Found, given: dict[Node, Ref]
    ) -> bool:
        if own.__class__ is not Ref or other.__class__ is not Ref:
            return own.__class__ is other.__class__ and same_value(own, other)
        node = own.node
        if node.kind == "input" and node.value is None:
            return given.setdefault(node, other) == other and own.aval == other.aval
        if own.index != other.index:
            return False
        if node.kind == "input":
            return self.states.get(node.label) is other.node
        if node.kind == "constant":
            return _has_value(other.node, node.value)
        return node.kind == "call" and self._unify(node, other.node, nodes, given)


def holds(
    match: Match, template: CapturedGraph, states: Mapping[str, Node], positions: Mapping[Node, Node]
) -> bool:
    """Whether the same nodes match at other sizes: ``template`` and ``positions`` are of these sizes."""
    if len(template.nodes) != len(match.template.nodes):
        return False
    same = dict(zip(match.template.nodes, template.nodes, strict=True))
    search = Search(template, {label: positions[node] for label, node in states.items()}, {})
    given = {
        node: Ref(positions[ref.node], ref.index)
        for node, ref in zip(template.arguments, match.arguments, strict=True)
    }
    nodes: Found = {}
    return all(search._unify(same[own], positions[other], nodes, given) for own, other in match.nodes.items())


def same_value(own: object, other: object) -> bool:
    """Whether two attributes are equal, in their types too."""
    if own.__class__ is not other.__class__:
        return False
    if isinstance(own, dict) and isinstance(other, dict):
        return own.keys() == other.keys() and all(same_value(own[name], other[name]) for name in own)
    if isinstance(own, tuple | list) and isinstance(other, tuple | list):
        return len(own) == len(other) and all(map(same_value, own, other))
    return bool(own == other)


def _has_value(node: Node, value: np.ndarray) -> bool:
    """Whether a node is a constant of this value, or the filled array that it is where sizes may change."""
    if node.avals[0] != aval_of(value):
        return False
    if node.kind == "constant":
        return bool(node.value.tobytes() == value.tobytes())
    return node.name == "new_full" and bool((value == node.attrs["value"]).all())
