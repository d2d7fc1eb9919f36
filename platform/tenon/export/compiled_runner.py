"""``CompiledRunner``: runs a captured graph as a compiled program, as ``tenon.compile`` makes of a recording.

``tenon plan`` measures its programs. A program is bound to the sizes of one call; calls of other sizes get
programs of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon.export.captured import CapturedGraph
from tenon.export.runner import KEPT, Runner, argument_sizes, check_guard
from tenon.graph.graph import Node, Ref
from tenon.graph.passes import default
from tenon.graph.program import Program
from tenon.graph.scalars import evaluate
from tenon.kernels.backend import backend_named


class CompiledRunner(Runner):
    """A ``Runner`` whose graph is compiled.

    >>> import tenon
    >>> graph = tenon.export.capture(lambda x: (x * 2.0 + 1.0).relu(), tenon.zeros(4))
    >>> runner = CompiledRunner(graph)
    >>> runner(tenon.tensor([-1.0, 0.0, 1.0, 2.0])).tolist()
    [0.0, 1.0, 3.0, 5.0]
    >>> [step.name for step in runner.program().graph.calls]
    ['fused']
    """

    def __init__(self, graph: CapturedGraph) -> None:
        super().__init__(graph)
        #: By the graph at some sizes, its program, and the buffers of its arguments by label.
        self._bound: dict[CapturedGraph, tuple[Program, CapturedGraph, dict[str, np.ndarray]]] = {}

    def program(self, **sizes: int) -> Program:
        """Return the program at these sizes of the graph's symbols, by default those of the example."""
        symbols = {name: each.example for name, each in self.graph.symbols.items()} | sizes
        return self._program(self._fitting(symbols))[0]

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run once on arrays for the arguments; return the outputs of the graph."""
        graph = self._fitting(argument_sizes(self.graph, arrays))
        program, compiled, buffers = self._program(graph)
        for node, array in zip(graph.arguments, arrays, strict=True):
            if node.label in buffers:
                np.copyto(buffers[node.label], array)
        inputs = [node for node in compiled.nodes if node.function == "input"]
        numbers = {node: self.scalars[node.label] for node in inputs}
        program.run([numbers[node] for node in inputs])
        values = {
            ref: evaluate(ref.node, numbers) if ref.scalar else program.value(ref)
            for guard in compiled.guards
            for ref in (guard.value, guard.other)
            if ref.__class__ is Ref
        }
        for guard in compiled.guards:
            check_guard(guard, values)
        results = [np.array(program.value(ref)) for ref in compiled.outputs]
        self.changed = {name: np.array(buffers[name]) for name in graph.changed}
        for _, scalar in graph.scalars:
            self.scalars[scalar.name] += scalar.increment
        return results

    def _program(self, graph: CapturedGraph) -> tuple[Program, CapturedGraph, dict[str, np.ndarray]]:
        if graph not in self._bound:
            if len(self._bound) >= KEPT:
                self._bound.clear()
            compiled, backend = graph.copy(), backend_named("cpu")
            program = Program(compiled, backend, default(backend))
            arrays: dict[Node, np.ndarray] = {}
            buffers: dict[str, np.ndarray] = {}
            for node in compiled.inputs:
                if node.label in self.state:
                    arrays[node] = self.state[node.label]
                else:
                    aval = node.avals[0]
                    buffers[node.label] = arrays[node] = np.zeros(aval.shape, aval.dtype)
            program.bind(arrays)
            self._bound[graph] = program, compiled, buffers
        return self._bound[graph]
