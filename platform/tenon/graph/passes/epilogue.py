"""Fuse a product or convolution with the steps that follow it: a bias, an inference batch norm, a residual.

Steps are multiplications and additions, including the parts of a composite (``decompose.parts``): a batch
norm with fixed statistics is one of each, by two vectors that are computed separately. The backend decides
which steps it supports (``Compiler.layouts().finishes``). Each step must be the only reader of the result
before it, and keep its shape.
"""

from __future__ import annotations

from typing import TypeAlias

from tenon.engine.aval import Aval
from tenon.engine.op import Composite
from tenon.graph.epilogue import epilogue as epilogue_op
from tenon.graph.graph import Graph, Node, Ref, sources_of
from tenon.graph.passes.decompose import parts
from tenon.kernels.backend import Backend
from tenon.kernels.compiler import LayoutRules

#: ``("add" or "mul", operand)`` for each step.
Steps: TypeAlias = list[tuple[str, Ref]]
_STEPS = frozenset({"add", "mul"})


def epilogue(graph: Graph, backend: Backend) -> None:
    """Replace products and the steps that follow them by ``epilogue`` calls."""
    rules = backend.compiler.layouts() if backend.compiler else None
    if rules is not None and any(n.op.name in rules.FINISHED for n in graph.calls):
        _Epilogues(graph, rules).run()


class _Epilogues:
    def __init__(self, graph: Graph, rules: LayoutRules) -> None:
        self.graph, self.rules = graph, rules
        self.users, self.roots = graph.users(), set(graph.roots())
        self.removed: set[Node] = set()
        self.changes: dict[Ref, Ref] = {}
        #: The nodes that replace the last node of each epilogue.
        self.replacements: dict[Node, list[Node]] = {}

    def run(self) -> None:
        """Rewrite the graph: all products, in order."""
        for node in self.graph.calls:
            if node.op.name in self.rules.FINISHED:
                self._finish(node)
        nodes: list[Node] = []
        for node in self.graph.nodes:
            nodes += self.replacements.get(node, [] if node in self.removed else [node])
        self.graph.nodes = nodes
        self.graph.replace(self.changes)

    def _finish(self, node: Node) -> None:
        """Fuse the product ``node`` with as many steps as the backend supports."""
        steps: Steps = []
        vectors: list[Node] = []
        last, absorbed = node, [node]
        while (user := self._only_reader(last.out())) is not None and user.avals == node.avals:
            more, operands = self._steps(user, last.out())
            if not more or not self._supports(node, [*steps, *more]):
                break
            steps, vectors, last = [*steps, *more], [*vectors, *operands], user
            self.removed.add(user)
            absorbed.append(user)
        if last is node:
            return
        self.removed.add(node)
        fused = Node("call", epilogue_op, (*node.args, *(ref for _, ref in steps)))
        fused.attrs = {
            "base": node.op, "count": len(node.args), "steps": tuple(name for name, _ in steps),
            "attrs": node.attrs,
        }  # fmt: skip
        fused.avals, fused.module, fused.where = node.avals, node.module, node.where
        fused.phase = node.phase
        fused.sources = sources_of(*absorbed)
        fused.label = "+".join([node.op.name, *(name for name, _ in steps)])
        self.replacements[last] = [*vectors, fused]
        self.changes[last.out()] = fused.out()

    def _only_reader(self, ref: Ref) -> Node | None:
        readers = self.users.get(ref, ())
        if len(readers) != 1 or ref in self.roots or readers[0] in self.removed:
            return None
        return readers[0]

    def _supports(self, node: Node, steps: Steps) -> bool:
        ins = [a.aval if a.__class__ is Ref else a for a in node.args]
        step_avals = [(name, ref.aval) for name, ref in steps]
        return bool(self.rules.finishes(node.op, ins, node.avals, node.attrs, step_avals))

    def _steps(self, user: Node, ref: Ref) -> tuple[Steps, list[Node]]:
        """Return the steps of ``user`` on ``ref``, and the calls that compute their operands; else empty
        lists."""
        calls = parts(user) if isinstance(user.op, Composite) else ([user], [user.out()])
        if calls is None or len(calls[1]) != 1:
            return [], []
        steps: Steps = []
        beside: list[Node] = []
        passed: set[Ref] = set()
        for node in calls[0]:
            if not passed.isdisjoint(node.refs):
                return [], []  # it reads an intermediate value, which the kernel does not store
            if ref not in node.refs:
                beside.append(node)
                continue
            first = node.args[0]  # a bfloat16 number would be compared with the members of ``ref``
            other = node.args[first.__class__ is Ref and first == ref] if node.op.name in _STEPS else None
            if other.__class__ is not Ref or other.scalar or other == ref or node.avals != user.avals:
                return [], []
            steps.append((node.op.name, _vector(other, beside)))
            passed.add(ref)
            ref = node.out()
        return (steps, beside) if ref == calls[1][0] else ([], [])


def _vector(ref: Ref, beside: list[Node]) -> Ref:
    """Return ``ref`` without leading axes of size 1, if a reshape among ``beside`` computes it."""
    shape = ref.aval.shape
    while shape and shape[0] == 1:
        shape = shape[1:]
    if shape == ref.aval.shape or ref.node not in beside or ref.node.op.name != "reshape":
        return ref
    ref.node.attrs, ref.node.avals = {"shape": shape}, (Aval(shape, ref.aval.dtype),)
    return ref
