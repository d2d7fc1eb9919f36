"""Do what follows a convolution while its result is at hand: batch norm of inference, and a residual added.

A batch norm with given statistics is a multiplication and an addition for each channel; the two vectors are
computed by themselves. The backend says how much it takes (``Backend.layouts().finishes``). What follows must
be the only reader of the result, whose shape it keeps.
"""

from __future__ import annotations

from typing import Any

from tenon.core.aval import Aval
from tenon.core.backend import Backend
from tenon.core.op import table
from tenon.graph.epilogue import epilogue as epilogue_op
from tenon.graph.graph import Graph, Node, Ref

Steps = list[tuple[str, Ref]]


def epilogue(graph: Graph, backend: Backend) -> None:
    """Replace products and what follows them by ``epilogue`` calls."""
    offer = backend.layouts()
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
        if user.op.name == "batch_norm_inference" and user.args[0] == ref:
            return _normalisation(user)
        if user.op.name == "add" and len(user.args) == 2:
            other = user.args[1] if user.args[0] == ref else user.args[0]
            if other.__class__ is Ref and not other.scalar:
                return [("add", other)], []
        return [], []


def _normalisation(node: Node) -> tuple[Steps, list[Node]]:
    """A batch norm as ``x * scale + shift``."""
    x, weight, bias, mean, variance = node.args
    made: list[Node] = []

    def call(name: str, *args: Any, **attrs: Any) -> Ref:
        own = Node("call", table[name], args)
        own.attrs, own.module, own.where = attrs, node.module, node.where
        shape = attrs.get("shape", variance.aval.shape)
        own.avals = (Aval(shape, variance.aval.dtype),)
        made.append(own)
        return own.out()

    scale = call("rsqrt", call("add", variance, node.attrs.get("eps", 1e-5)))
    if weight is not None:
        scale = call("mul", scale, weight)
    shift = call("mul", mean, scale)
    shift = call("neg", shift) if bias is None else call("sub", bias, shift)
    shape = (*variance.aval.shape, *(1,) * (len(x.aval.shape) - 2))
    return [("mul", call("reshape", scale, shape=shape)), ("add", call("reshape", shift, shape=shape))], made
