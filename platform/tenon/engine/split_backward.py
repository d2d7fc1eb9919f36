"""Split a backward pass in two: first the gradients of chosen inputs, later those of all other leaves.

The first pass visits the nodes that lead to the inputs, and runs no rule for other edges; it keeps each
node with such an edge, together with the gradient of its output. The second pass starts from there, so that
both together do the work of one. Pipelines use it to send gradients on before those of weights are computed.

Nodes with hooks, custom functions and passes on tensors compute everything in the first pass, and the second
one only passes the results on: their functions run once.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon.engine.backward import _initial, _restrict, _run
from tenon.engine.running_pass import PASS, call_queued
from tenon.engine.sweep import Sweep
from tenon.engine.tape import LEAF, Edge, Edges, Node, Target
from tenon.engine.types import Gradient
from tenon.engine.value import Value


class _InputSweep(Sweep):
    """Collects the gradients of inputs."""

    __slots__ = ("deferred", "prunes", "waiting")

    def __init__(self) -> None:
        super().__init__(create_graph=False, keep_graph=False)
        self.accumulates = False
        self.waiting: list[tuple[Node, Gradient]] = []
        """Nodes of which rules are to be run yet, and the gradients of their outputs."""
        self.deferred: list[tuple[Target, Gradient]] = []
        """Gradients that are to be sent yet."""
        self.prunes = True

    def leads(self, edge: Target) -> bool:
        """Whether an input is behind ``edge``."""
        target, index = edge
        if index == LEAF:
            return self.collected is not None and (id(target), LEAF) in self.collected
        return self.needed is not None and id(target) in self.needed

    def visit_plain(self, node: Node, grad: Gradient) -> None:
        """Run the rules of edges that lead to an input; keep the node if there are others."""
        waits = any(edge is not None and not self.leads(edge) for edge in node.edges)
        if waits:
            self.waiting.append((node, grad))
        self.keep_graph = waits
        super().visit_plain(node, grad)

    def visit(self, node: Node, grad: Gradient) -> None:
        """Run all rules."""
        self.prunes = self.keep_graph = False
        super().visit(node, grad)
        self.prunes = True

    def open_edges(self, edges: Edges) -> list[Edge]:
        """Those that lead to an input, unless all rules are run."""
        return super().open_edges(edges) if self.prunes else list(edges)

    def send(self, edge: Target, grad: Gradient, fresh: bool) -> None:
        """Defer gradients that lead to no input."""
        if self.leads(edge):
            super().send(edge, grad, fresh)
        else:
            self.deferred.append((edge, grad))


class _RestSweep(Sweep):
    """Accumulates what an ``_InputSweep`` has left."""

    __slots__ = ("_first", "_split")

    def __init__(self, first: _InputSweep) -> None:
        super().__init__(create_graph=False, keep_graph=False)
        self._first = first
        self._split = {id(node) for node, _ in first.waiting}

    def visit_plain(self, node: Node, grad: Gradient) -> None:
        """Run the rules that have not been run."""
        self._begin(node)
        super().visit_plain(node, grad)

    def visit(self, node: Node, grad: Gradient) -> None:
        """Run the rules that have not been run."""
        self._begin(node)
        super().visit(node, grad)

    def _begin(self, node: Node) -> None:
        self.needed = set() if id(node) in self._split else None

    def open_edges(self, edges: Edges) -> list[Edge]:
        """Those whose rules have not been run."""
        self.needed = None
        return [None if edge is not None and self._first.leads(edge) else edge for edge in edges]


class SplitBackward:
    """A backward pass from ``roots``, whose gradients start from ``gradients``, in two parts.

    Construction computes ``input_gradients``, those of ``inputs``, leaves; None for one that no root depends
    on. ``finish`` accumulates the gradients of all other leaves, and releases the graph.
    """

    def __init__(
        self, roots: Sequence[Value], gradients: Sequence[Value | None], inputs: Sequence[Value]
    ) -> None:
        self._sweep: _InputSweep | None = None
        sweep = _InputSweep()
        initial = _initial(roots, gradients, sweep)
        _restrict(sweep, roots, inputs)
        _run(sweep, roots, initial)
        if PASS.queued:
            call_queued()
        assert sweep.collected is not None  # set by ``_restrict``
        self.input_gradients = [
            grad
            if grad is None or isinstance(grad, Value)
            else Value.make(each._backend.as_array(grad), each._backend)
            for each in inputs
            for grad in (sweep.collected[id(each), LEAF],)
        ]
        self._sweep = sweep

    def finish(self) -> None:
        """Compute the other gradients; nothing if that has been done."""
        first, self._sweep = self._sweep, None
        if first is None:
            return
        rest = _RestSweep(first)
        for node, grad in first.waiting:
            rest.schedule(node, grad)
        for edge, grad in first.deferred:
            rest.send(edge, grad, False)
        _run(rest, (), ())
        if PASS.queued:
            call_queued()
