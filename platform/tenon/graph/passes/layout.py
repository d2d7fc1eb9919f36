"""Keep values in the layouts that convolutions are fast in, with copies only where a region begins or ends.

Convolutions ask for what they want (``Compiler.layouts``); pooling, batch norm and elementwise ops carry the
layout on; everything else, and the outside, gets plain arrays. A call that computes in other layouts than the
plain one says so in ``attrs["layouts"]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.graph.graph import Graph, Node, Ref, Write
from tenon.graph.reorder import reorder
from tenon.kernels.backend import Backend


def layout(graph: Graph, backend: Backend) -> None:
    """Assign layouts and insert ``reorder`` calls between them."""
    offer = backend.compiler.layouts() if backend.compiler else None
    if offer is not None and any(n.op.name in offer.SEEDS for n in graph.calls):
        _Layouts(graph, offer).run()


class _Layouts:
    def __init__(self, graph: Graph, offer: Any) -> None:
        self.graph, self.offer = graph, offer
        self.nodes: list[Node] = []
        #: Values that do not lie plain.
        self.special: dict[Ref, Any] = {}
        self.moved: dict[tuple[Ref, Any], Ref] = {}

    def run(self) -> None:
        """All nodes in order, then what the outside sees."""
        for node in self.graph.nodes:
            if node.kind == "call":
                self._call(node)
            self.nodes.append(node)
        plain = self.offer.PLAIN
        self.graph.outputs = [self._as(r, plain) for r in self.graph.outputs]
        self.graph.writes = [Write(w.target, self._as(w.value, plain)) for w in self.graph.writes]
        self.graph.nodes = self.nodes

    def _call(self, node: Node) -> None:
        plain = self.offer.PLAIN
        ins = [a.aval if a.__class__ is Ref else a for a in node.args]
        found = [self.special.get(a, plain) if a.__class__ is Ref else plain for a in node.args]
        wanted = self.offer.wanted_layouts(node.op, ins, node.avals, node.attrs)
        if wanted is not None and (node.op.name in self.offer.SEEDS or self._carries(wanted, found)):
            # How a weight is packed concerns this call only, which packs it.
            needed = [plain if w.packed is not None else w for w in wanted.inputs]
            node.attrs = {**node.attrs, "layouts": type(wanted)(tuple(needed), wanted.outputs)}
            made = wanted.outputs
        else:
            special = next((f for f in found if f != plain), plain)
            if special != plain and not self.offer.follows(node.op, ins, node.avals):
                special = plain
            shape = node.avals[0].shape if node.avals else None
            needed = [
                special if a.__class__ is Ref and not a.scalar and a.aval.shape == shape else plain
                for a in node.args
            ]
            made = (special,) * len(node.avals)
        node.args = tuple(
            self._as(a, w) if a.__class__ is Ref else a for a, w in zip(node.args, needed, strict=True)
        )
        for index, own in enumerate(made):
            if own != plain:
                self.special[node.out(index)] = own

    def _carries(self, wanted: Any, found: Sequence[Any]) -> bool:
        plain = self.offer.PLAIN
        return any(w != plain and f == w for w, f in zip(wanted.inputs, found, strict=True))

    def _as(self, ref: Ref, target: Any) -> Ref:
        """``ref`` in layout ``target``."""
        source = self.special.get(ref, self.offer.PLAIN)
        if source == target or ref.scalar:
            return ref
        key = (ref, target)
        if key not in self.moved:
            node = Node("call", reorder, (ref,))
            node.attrs = {"source": source, "target": target}
            node.avals = (ref.aval,)
            node.module, node.phase = ref.node.module, ref.node.phase
            self.nodes.append(node)
            self.moved[key] = node.out()
            self.moved[node.out(), source] = ref
            if target != self.offer.PLAIN:
                self.special[node.out()] = target
        return self.moved[key]


def special_values(graph: Graph) -> dict[Ref, Any]:
    """The values that do not lie plain, and their layouts."""
    found: dict[Ref, Any] = {}
    for node in graph.calls:
        assigned = node.attrs.get("layouts")
        if assigned is not None:
            for index, own in enumerate(assigned.outputs):
                if own.name != "plain":
                    found[node.out(index)] = own
        elif node.op is reorder:
            if node.attrs["target"].name != "plain":
                found[node.out()] = node.attrs["target"]
        else:
            own = next((found[r] for r in node.refs if r in found), None)
            if own is not None:
                for index in range(len(node.avals)):
                    found[node.out(index)] = own
    return found
