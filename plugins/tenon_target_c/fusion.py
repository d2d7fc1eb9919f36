"""Group neighbouring elementwise calls, so that each group becomes one loop.

A call joins the group of its only readers if all of them are elementwise, of its shape, in one group. The
group's last call is its root: the only one whose result is stored.
"""

from __future__ import annotations

from collections.abc import Set

from tenon.extend import Graph, Node, Ref
from tenon_target_c.families.elementwise import is_elementwise

#: The maximum number of calls in a group, and of arrays that it reads.
MOST_CALLS, MOST_ARRAYS = 32, 10


def groups(graph: Graph, apart: Set[Node] = frozenset()) -> dict[Node, list[Node]]:
    """Return the calls of each group by its root, in order; every elementwise call is in one group.

    Calls of ``apart`` are roots: they are emitted by themselves.
    """
    users = graph.users()
    visible = set(graph.roots())
    root_of: dict[Node, Node] = {}
    members: dict[Node, list[Node]] = {}
    reads: dict[Node, set[Ref]] = {}
    for node in reversed(graph.nodes):
        if not is_elementwise(node) or not node.avals[0].size:
            continue
        readers = users.get(node.out(), [])
        roots = {root_of.get(r) for r in readers}
        root = next(iter(roots)) if len(roots) == 1 else None
        outside = {r for r in node.refs if not r.scalar}
        if (
            root is not None
            and node not in apart
            and node.out() not in visible
            and node.avals[0].shape == root.avals[0].shape
            and len(members[root]) < MOST_CALLS
            and len((reads[root] | outside) - {node.out()}) <= MOST_ARRAYS
        ):
            members[root].append(node)
            reads[root] = (reads[root] | outside) - {node.out()}
            root_of[node] = root
        else:
            members[node], reads[node], root_of[node] = [node], outside, node
    return {root: list(reversed(nodes)) for root, nodes in members.items()}
