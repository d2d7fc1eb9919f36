"""Store values in the memory layouts in which convolutions are fast, with copies at the borders of a region.

Convolutions choose their layouts (``Compiler.layouts``); pooling, batch norm and elementwise ops use those of
their inputs; all other ops, outputs and writes use plain arrays. The attribute ``attrs["layouts"]`` of a call
has its layouts, if they are not plain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.graph.graph import Graph, Node, Ref, Write
from tenon.graph.reorder import reorder
from tenon.kernels.backend import Backend
from tenon.kernels.compiler import AssignedLayouts, Layout, LayoutRules


def layout(graph: Graph, backend: Backend) -> None:
    """Assign layouts and insert ``reorder`` calls between them."""
    rules = backend.compiler.layouts() if backend.compiler else None
    if rules is not None and any(n.op.name in rules.SEEDS for n in graph.calls):
        _Layouts(graph, rules).run()


class _Layouts:
    def __init__(self, graph: Graph, rules: LayoutRules) -> None:
        self.graph, self.rules = graph, rules
        self.nodes: list[Node] = []
        #: The layouts of values that are not plain.
        self.special: dict[Ref, Layout] = {}
        #: Copies of values, by value and layout.
        self.copies: dict[tuple[Ref, Layout], Ref] = {}

    def run(self) -> None:
        """Rewrite the graph: all nodes in order, then outputs and writes."""
        for node in self.graph.nodes:
            if node.kind == "call":
                self._call(node)
            self.nodes.append(node)
        plain = self.rules.PLAIN
        self.graph.outputs = [self._as(r, plain) for r in self.graph.outputs]
        self.graph.writes = [Write(w.target, self._as(w.value, plain)) for w in self.graph.writes]
        self.graph.nodes = self.nodes

    def _call(self, node: Node) -> None:
        """Choose the layouts of a call and copy its arguments into them."""
        plain = self.rules.PLAIN
        ins = [a.aval if a.__class__ is Ref else a for a in node.args]
        present = [self.special.get(a, plain) if a.__class__ is Ref else plain for a in node.args]
        preferred = self.rules.wanted_layouts(node.op, ins, node.avals, node.attrs)
        if preferred is not None and (node.op.name in self.rules.SEEDS or self._carries(preferred, present)):
            # A packed weight is read by this call only, which packs it itself.
            needed = [plain if w.packed is not None else w for w in preferred.inputs]
            assigned: Any = type(preferred)  # constructed from the two, which a protocol cannot state
            node.attrs = {**node.attrs, "layouts": assigned(tuple(needed), preferred.outputs)}
            layouts = preferred.outputs
        else:
            special = next((f for f in present if f != plain), plain)
            if special != plain and not self.rules.follows(node.op, ins, node.avals):
                special = plain
            shape = node.avals[0].shape if node.avals else None
            needed = [
                special if a.__class__ is Ref and not a.scalar and a.aval.shape == shape else plain
                for a in node.args
            ]
            layouts = (special,) * len(node.avals)
        node.args = tuple(
            self._as(a, w) if a.__class__ is Ref else a for a, w in zip(node.args, needed, strict=True)
        )
        for index, own in enumerate(layouts):
            if own != plain:
                self.special[node.out(index)] = own

    def _carries(self, preferred: AssignedLayouts, present: Sequence[Layout]) -> bool:
        """Whether an input already has a preferred layout that is not plain."""
        plain = self.rules.PLAIN
        return any(w != plain and f == w for w, f in zip(preferred.inputs, present, strict=True))

    def _as(self, ref: Ref, target: Layout) -> Ref:
        """Return ``ref`` in layout ``target``, copied if it has another one."""
        source = self.special.get(ref, self.rules.PLAIN)
        if source == target or ref.scalar:
            return ref
        key = (ref, target)
        if key not in self.copies:
            node = Node("call", reorder, (ref,))
            node.attrs = {"source": source, "target": target}
            node.avals = (ref.aval,)
            node.module, node.phase = ref.node.module, ref.node.phase
            self.nodes.append(node)
            self.copies[key] = node.out()
            self.copies[node.out(), source] = ref
            if target != self.rules.PLAIN:
                self.special[node.out()] = target
        return self.copies[key]


def special_values(graph: Graph) -> dict[Ref, Layout]:
    """Return the layouts of all values that are not plain."""
    layouts: dict[Ref, Layout] = {}
    for node in graph.calls:
        assigned = node.attrs.get("layouts")
        if assigned is not None:
            for index, own in enumerate(assigned.outputs):
                if own.name != "plain":
                    layouts[node.out(index)] = own
        elif node.op is reorder:
            if node.attrs["target"].name != "plain":
                layouts[node.out()] = node.attrs["target"]
        else:
            own = next((layouts[r] for r in node.refs if r in layouts), None)
            if own is not None:
                for index in range(len(node.avals)):
                    layouts[node.out(index)] = own
    return layouts
