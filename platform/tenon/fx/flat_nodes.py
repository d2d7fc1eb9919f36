"""Nodes in a form for pickling: references to other nodes are positions in the list.

Pickling the nodes themselves would recurse from each into its inputs, as deep as the program is long.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tenon.fx.arguments import Nested, aggregate

if TYPE_CHECKING:
    from tenon.fx.graph import Graph
    from tenon.fx.node import Node, Target

#: Attributes of every node; others were set by users.
_OWN = {
    "graph", "name", "op", "target", "type", "users", "meta", "_input_nodes", "_repr_fn", "_sort_key",
    "_prev", "_next", "_erased", "_args", "_kwargs",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Position:
    """A reference to the node at a position."""

    index: int


@dataclass(frozen=True, slots=True)
class FlatNode:
    """The picklable form of a node."""

    op: str
    name: str
    target: Target
    args: Nested
    kwargs: Nested
    type: Any  # an annotation
    meta: dict[str, Any]  # of any type
    attributes: dict[str, Any]  # of any type

    def insert_into(self, graph: Graph, nodes: list[Node]) -> None:
        """Append the node to ``graph``, and to ``nodes``, which has those before it."""

        def node_of(leaf: Nested) -> Nested:
            return nodes[leaf.index] if isinstance(leaf, Position) else leaf

        args, kwargs = aggregate(self.args, node_of), aggregate(self.kwargs, node_of)
        node = graph.create_node(self.op, self.target, args, kwargs, self.name, self.type)
        node.meta = self.meta
        vars(node).update(self.attributes)
        nodes.append(node)


def flat_nodes(nodes: Iterable[Node]) -> list[FlatNode]:
    """Return the nodes without references to each other."""
    positions: dict[object, Position] = {}
    flat = []
    for index, node in enumerate(nodes):

        def position_of(leaf: Nested) -> Nested:
            is_node = type(leaf) is type(node)  # noqa: B023 - called below, within the loop's turn
            return positions[leaf] if is_node else leaf

        args, kwargs = aggregate(node.args, position_of), aggregate(node.kwargs, position_of)
        extra = {key: value for key, value in vars(node).items() if key not in _OWN}
        flat.append(FlatNode(node.op, node.name, node.target, args, kwargs, node.type, node.meta, extra))
        positions[node] = Position(index)
    return flat
