"""``Interpreter``: walk a graph with real arrays, op by op; subclass it and override ``run_op``.

The plain one computes what the recorded function computed, without buffers, passes or views of them: the
reference for every pass and program.

>>> class Counter(Interpreter):
...     count = 0
...
...     def run_op(self, node, args):
...         self.count += 1
...         return super().run_op(node, args)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenon.engine.quiet import quiet
from tenon.graph.epilogue import epilogue
from tenon.graph.graph import Graph, Node, Ref
from tenon.graph.reorder import reorder
from tenon.graph.scalars import evaluate
from tenon.kernels.backend import Backend, backend_named


class Interpreter:
    """Runs ``graph`` on ``backend`` (by default the CPU's)."""

    def __init__(self, graph: Graph, backend: Backend | None = None) -> None:
        self.graph = graph
        self.backend = backend or backend_named("cpu")
        #: Every value of the last run: arrays, and numbers for scalars.
        self.values: dict[Ref, Any] = {}

    def run(
        self, arrays: Mapping[Node, Any], scalars: Sequence[float] = ()
    ) -> tuple[list[Any], dict[Node, Any]]:
        """The outputs, and what each written input would receive. ``arrays`` are not changed."""
        inputs = [n for n in self.graph.nodes if n.kind == "scalar" and n.op == "input"]
        numbers = dict(zip(inputs, scalars, strict=True))
        self.values = values = {}
        with quiet():
            for node in self.graph.nodes:
                if node.kind == "scalar":
                    values[node.out()] = evaluate(node, numbers)
                elif node.kind == "call":
                    args = [values[a] if a.__class__ is Ref else a for a in node.args]
                    made = self.run_op(node, args)
                    several = made if isinstance(made, tuple | list) else (made,)
                    for index, value in enumerate(several):
                        values[node.out(index)] = self.backend.as_array(value)
                else:
                    values[node.out()] = node.value if node.kind == "constant" else arrays[node]
        outputs = [values[r] for r in self.graph.outputs]
        return outputs, {w.target: values[w.value] for w in self.graph.writes}

    def run_op(self, node: Node, args: Sequence[Any]) -> Any:
        """One call: its array, or a tuple of them."""
        if "cluster" in node.attrs:
            return node.op.forward(self.backend, *args, **node.attrs)
        if node.op is reorder:
            return args[0]
        attrs = {k: v for k, v in node.attrs.items() if k != "layouts"}
        if node.op is epilogue:
            return node.op.forward(self.backend, *args, **attrs)
        return self.backend.kernel_for(node.op, args)(*args, **attrs)
