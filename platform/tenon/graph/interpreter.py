"""``Interpreter``: runs a graph on arrays, op by op; subclass it and override ``run_op``.

The base class computes what the recorded function computed, without memory plan and passes: the reference for
every pass and program.

>>> class Counter(Interpreter):
...     count = 0
...
...     def run_op(self, node, args):
...         self.count += 1
...         return super().run_op(node, args)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenon.engine.quiet import quiet
from tenon.engine.types import Array
from tenon.graph.epilogue import Epilogue
from tenon.graph.fused import Fused
from tenon.graph.graph import Graph, Node, Ref
from tenon.graph.reorder import reorder
from tenon.graph.scalars import evaluate
from tenon.kernels.backend import Backend, backend_named


class Interpreter:
    """Runs ``graph`` on ``backend`` (by default the CPU's)."""

    def __init__(self, graph: Graph, backend: Backend | None = None) -> None:
        self.graph = graph
        self.backend = backend or backend_named("cpu")
        #: All values of the last run: arrays, and floats for scalars.
        self.values: dict[Ref, Array] = {}

    def run(
        self, arrays: Mapping[Node, Array], scalars: Sequence[float] = ()
    ) -> tuple[list[Array], dict[Node, Array]]:
        """Return the outputs, and the values of the writes by their target.

        ``arrays`` has one for each input, which is not changed; ``scalars`` the scalar inputs in order.
        """
        inputs = [n for n in self.graph.nodes if n.function == "input"]
        numbers = dict(zip(inputs, scalars, strict=True))
        self.values = values = {}
        with quiet():
            for node in self.graph.nodes:
                if node.kind == "scalar":
                    values[node.out()] = evaluate(node, numbers)
                elif node.kind == "call":
                    args = [values[a] if a.__class__ is Ref else a for a in node.args]
                    result = self.run_op(node, args)
                    results = result if isinstance(result, tuple | list) else (result,)
                    for index, value in enumerate(results):
                        values[node.out(index)] = self.backend.as_array(value)
                else:
                    values[node.out()] = node.value if node.kind == "constant" else arrays[node]
        outputs = [values[r] for r in self.graph.outputs]
        return outputs, {w.target: values[w.value] for w in self.graph.writes}

    def run_op(self, node: Node, args: Sequence[Array]) -> Array | tuple[Array, ...]:
        """Run one call on ``args``; return its array, or a tuple of them."""
        if isinstance(node.op, Fused):
            return node.op.forward(self.backend, *args, **node.attrs)
        if node.op is reorder:
            return args[0]
        attrs = {k: v for k, v in node.attrs.items() if k != "layouts"}
        if isinstance(node.op, Epilogue):
            return node.op.forward(self.backend, *args, **attrs)
        return self.backend.kernel_for(node.op, args)(*args, **attrs)
