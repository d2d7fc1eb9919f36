"""Do what follows a product or a convolution while its result is at hand: a bias, batch norm of inference, a
residual.

Steps are multiplications and additions, also those that a composite is made of (``decompose.parts``): a batch
norm with given statistics is one of each, by two vectors that are computed by themselves. The backend says
how much it takes (``Compiler.layouts().finishes``). What follows must be the only reader of the result, whose
shape it keeps.
"""

from __future__ import annotations

from typing import Any

from tenon.engine.aval import Aval
from tenon.engine.op import Composite
from tenon.graph.epilogue import epilogue as epilogue_op
from tenon.graph.graph import Graph, Node, Ref
from tenon.graph.passes.decompose import parts
from tenon.kernels.backend import Backend

Steps = list[tuple[str, Ref]]
_STEPS = frozenset({"add", "mul"})


def epilogue(graph: Graph, backend: Backend) -> None:
    """Replace products and what follows them by ``epilogue`` calls."""
    offer = backend.compiler.layouts() if backend.compiler else None
    if offer is not None and any(n.op.name in offer.FINISHED for n in graph.calls):
        _Epilogues(graph, offer).run()


class _Epilogues:
    def __init__(self, graph: Graph, offer: Any) -> None:
        self.graph, self.offer = graph, offer
        self.users, self.roots = graph.users(), set(graph.roots())
        self.gone: set[Node] = set()
        self.changes: dict[Ref, Ref] = {}
        #: What takes the place of the last node of each epilogue.
        self.instead: dict[Node, list[Node]] = {}

    def run(self) -> None:
        """All products, in order."""
        for node in self.graph.calls:
            if node.op.name in self.offer.FINISHED:
                self._finish(node)
        nodes: list[Node] = []
        for node in self.graph.nodes:
            nodes += self.instead.get(node, [] if node in self.gone else [node])
        self.graph.nodes = nodes
        self.graph.replace(self.changes)

    def _finish(self, node: Node) -> None:
        steps: Steps = []
        made: list[Node] = []
        last = node
        while (user := self._only_reader(last.out())) is not None and user.avals == node.avals:
            found, vectors = self._steps(user, last.out())
            if not found or not self._takes(node, [*steps, *found]):
                break
            steps, made, last = [*steps, *found], [*made, *vectors], user
            self.gone.add(user)
        if last is node:
            return
        self.gone.add(node)
        whole = Node("call", epilogue_op, (*node.args, *(ref for _, ref in steps)))
        whole.attrs = {
            "base": node.op, "count": len(node.args), "steps": tuple(name for name, _ in steps),
            "attrs": node.attrs,
        }  # fmt: skip
        whole.avals, whole.module, whole.where = node.avals, node.module, node.where
        whole.phase = node.phase
        whole.label = "+".join([node.op.name, *(name for name, _ in steps)])
        self.instead[last] = [*made, whole]
        self.changes[last.out()] = whole.out()

    def _only_reader(self, ref: Ref) -> Node | None:
        readers = self.users.get(ref, ())
        if len(readers) != 1 or ref in self.roots or readers[0] in self.gone:
            return None
        return readers[0]

    def _takes(self, node: Node, steps: Steps) -> bool:
        ins = [a.aval if a.__class__ is Ref else a for a in node.args]
        asked = [(name, ref.aval) for name, ref in steps]
        return bool(self.offer.finishes(node.op, ins, node.avals, node.attrs, asked))

    def _steps(self, user: Node, ref: Ref) -> tuple[Steps, list[Node]]:
        """What ``user`` does to ``ref``, and the calls that compute its operands."""
        found = parts(user) if isinstance(user.op, Composite) else ([user], [user.out()])
        if found is None or len(found[1]) != 1:
            return [], []
        steps: Steps = []
        beside: list[Node] = []
        passed: set[Ref] = set()
        for node in found[0]:
            if not passed.isdisjoint(node.refs):
                return [], []  # what the kernel never writes is read once more
            if ref not in node.refs:
                beside.append(node)
                continue
            other = node.args[node.args[0] == ref] if node.op.name in _STEPS else None
            if other.__class__ is not Ref or other.scalar or other == ref or node.avals != user.avals:
                return [], []
            steps.append((node.op.name, _vector(other, beside)))
            passed.add(ref)
            ref = node.out()
        return (steps, beside) if ref == found[1][0] else ([], [])


def _vector(ref: Ref, beside: list[Node]) -> Ref:
    """``ref`` without leading axes of size 1, if it came out of a reshape beside the product."""
    shape = ref.aval.shape
    while shape and shape[0] == 1:
        shape = shape[1:]
    if shape == ref.aval.shape or ref.node not in beside or ref.node.op.name != "reshape":
        return ref
    ref.node.attrs, ref.node.avals = {"shape": shape}, (Aval(shape, ref.aval.dtype),)
    return ref
