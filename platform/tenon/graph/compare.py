"""Whether two recordings of one function are the same program."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.core.value import Value
from tenon.graph.graph import Graph, Node, Ref
from tenon.graph.recording import Recording


def difference(a: Recording, b: Recording) -> str | None:
    """What differs first, in words; None if nothing does."""
    if (a.backward is None) != (b.backward is None):
        return "one of them returns tensors that need a gradient"
    if a.backward is not None and b.backward is not None:
        found = _graph_difference(a.backward.graph, b.backward.graph, {}, {})
        if found is not None:
            return found
    places: dict[Node, int] = {}
    others: dict[Node, int] = {}
    found = _graph_difference(a.graph, b.graph, places, others)
    if found is not None:
        return found
    targets = [o.tensor for o in a.outside], [o.tensor for o in b.outside]
    if [id(t) for t in targets[0]] != [id(t) for t in targets[1]]:
        return "tensors from outside the function are others at every call; pass them as arguments"
    if not all(_same_object(r, s) for r, s in zip(a.returned, b.returned, strict=False)):
        return "what is returned (a Python number or object changed)"
    return None


def _graph_difference(a: Graph, b: Graph, places: dict[Node, int], others: dict[Node, int]) -> str | None:
    for i, (m, n) in enumerate(zip(a.nodes, b.nodes, strict=False)):
        places[m], others[n] = i, i
        found = _node_difference(m, n, places, others)
        if found is not None:
            return f"{found} in {n.name} at {n.where or 'an unknown place'} (was {m.where or 'unknown'})"
    if len(a.nodes) != len(b.nodes):
        return f"{len(a.nodes)} operations, then {len(b.nodes)}"
    return None


def _node_difference(m: Node, n: Node, places: dict[Node, int], others: dict[Node, int]) -> str | None:
    if m.kind != n.kind or m.op != n.op:
        return f"another operation ({m.name} before)"
    if m.avals != n.avals:
        return f"another shape or dtype ({m.avals} before, {n.avals} now)"
    if m.kind == "constant" and not np.array_equal(_bytes(m.value), _bytes(n.value)):
        return "a tensor made from Python data has other values at every call; pass it as an argument"
    if [_shown(x, places) for x in m.args] != [_shown(x, others) for x in n.args]:
        return "an operation has other arguments (a Python number that changes from call to call?)"
    if not n.effect and _attrs(m) != _attrs(n):
        return "an operation has other options"
    return None


def _shown(value: Any, places: dict[Node, int]) -> Any:
    if value.__class__ is Ref:
        return (places.get(value.node), value.index)
    return repr(value) if isinstance(value, float) else value


def _same_object(a: Any, b: Any) -> bool:
    return a is b or (a.__class__ is b.__class__ and not isinstance(a, Value) and bool(a == b))


def _attrs(node: Node) -> str:
    return repr(sorted(node.attrs.items(), key=lambda pair: pair[0]))


def _bytes(array: Any) -> Any:
    return np.ascontiguousarray(array).view(np.uint8)
