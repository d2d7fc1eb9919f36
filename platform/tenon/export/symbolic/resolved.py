"""A cache of a graph with free sizes at the sizes of earlier runs, valid until the graph is edited."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from tenon.graph.graph import Node, NodeArgument, Ref

if TYPE_CHECKING:
    from tenon.export.captured import CapturedGraph

#: The sizes of the symbols by name, sorted -> the graph at these sizes.
AtSizes: TypeAlias = dict[tuple[tuple[str, int], ...], "CapturedGraph"]


class Resolved:
    """The graphs that ``CapturedGraph.at`` returned for one graph, as long as that is unchanged."""

    def __init__(self) -> None:
        self._nodes: list[_Kept] = []
        self._rest: list[object] = []
        self._at: AtSizes = {}

    def of(self, graph: CapturedGraph) -> AtSizes:
        """Return the cached graphs that are still valid for ``graph``, to which others may be added."""
        rest, nodes = _rest_of(graph), graph.nodes
        same = len(nodes) == len(self._nodes) and rest == self._rest
        if not same or not all(kept.is_still(node) for kept, node in zip(self._nodes, nodes, strict=True)):
            self._nodes, self._rest, self._at = [_Kept(node) for node in nodes], rest, {}
        return self._at


class _Kept:
    """A snapshot of a node: its parts, and the values of those that can be changed in place."""

    __slots__ = ("attrs", "nested", "node", "parts")

    def __init__(self, node: Node) -> None:
        self.node, self.parts, self.attrs = node, _parts(node), tuple(node.attrs.items())
        nests = (node.args, *node.attrs.values())
        self.nested = [(nest, _form(nest)) for nest in nests if _can_change(nest)]

    def is_still(self, node: Node) -> bool:
        """Whether ``node`` is the same, unchanged. An equal copy of a part counts as a change."""
        attrs = node.attrs
        return (
            node is self.node
            and all(a is b for a, b in zip(_parts(node), self.parts, strict=True))
            and len(attrs) == len(self.attrs)
            and all(attrs.get(name, _ABSENT) is value for name, value in self.attrs)
            and all(_form(nest) == form for nest, form in self.nested)
        )


_ABSENT = object()


def _parts(node: Node) -> tuple[object, ...]:
    return node.op, node.args, node.avals, node.value, node.label, node.function


def _rest_of(graph: CapturedGraph) -> list[object]:
    """Return copies of what a graph has besides its nodes."""
    return [
        {node: dict(sizes) for node, sizes in graph.symbolic.items()},
        dict(graph.symbols),
        list(graph.outputs),
        list(graph.writes),
        list(graph.guards),
        list(graph.size_guards),
        graph.signature,
    ]


def _can_change(value: NodeArgument) -> bool:
    """Whether a part of ``value`` can be changed in place."""
    if isinstance(value, tuple):
        return value.__class__ is not Ref and any(map(_can_change, value))
    return isinstance(value, list | dict)


def _form(value: NodeArgument) -> object:
    """Return a nest in a form that compares by value and type, and does not change."""
    kind = value.__class__
    if kind is Ref or kind is str or value is None:
        return value
    if isinstance(value, tuple | list):
        return (kind, *map(_form, value))
    if isinstance(value, dict):
        return (kind, *((key, _form(each)) for key, each in value.items()))
    return (kind, repr(value))  # 1, 1.0 and True are equal, and nan is not equal to itself
