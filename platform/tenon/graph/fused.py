"""``fused``: the op of a call that runs a cluster, as one kernel of the backend or else step by step."""

from __future__ import annotations

from collections.abc import Sequence

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Op, table
from tenon.engine.types import Array, Operand
from tenon.graph.cluster import Cluster, Ref, Step
from tenon.kernels.backend import Backend


class Fused(Op):
    """Run the cluster ``attrs["cluster"]``. Not in the op table, as only passes insert it."""

    kind = Kind.ELEMENTWISE
    inputs = ("*xs",)
    outputs = 0

    def __init__(self) -> None:
        # Op.__init__ would register it in the table.
        self.name = self.__name__ = "fused"
        self.variadic, self.simple, self.is_ufunc, self.differentiable = True, False, False, False

    def infer(self, *xs: Operand, cluster: Cluster) -> tuple[Aval, ...]:
        """Return the avals of the cluster's outputs."""
        return tuple(cluster.aval(ref) for ref in cluster.outputs)

    def forward(self, backend: Backend, *xs: Array, cluster: Cluster) -> tuple[Array, ...]:
        """Run the steps one by one with the kernels of ``backend``."""
        values = list(xs)
        for step in cluster.steps:
            args = [values[a.index] if isinstance(a, Ref) else a for a in step.args]
            values.append(_run(backend, step, args))
        return tuple(values[ref.index] for ref in cluster.outputs)

    def replaceable(self, output: int, *, cluster: Cluster) -> Sequence[int]:
        """Return the positions of operands that ``output`` may overwrite: those that it is computed from,
        unless a step is a reduction.

        Only these are certain to be read before the element is stored: kernels declare that operands and
        results do not overlap, so that a compiler may read the others for another output later.
        """
        return () if cluster.reduces else _sources(cluster, output)

    def __reduce__(self) -> str:
        return "fused"


def _sources(cluster: Cluster, output: int) -> list[int]:
    """Return the indices of the inputs that an output is computed from."""
    found: set[int] = set()
    pending = [cluster.outputs[output]]
    while pending:
        ref = pending.pop()
        if ref.index not in found:
            found.add(ref.index)
            step = cluster.step(ref)
            pending += step.refs if step is not None else ()
    return sorted(i for i in found if i < len(cluster.inputs))


def _run(backend: Backend, step: Step, args: list[Array]) -> Array:
    op = table[step.op]
    result = backend.kernel_for(op, args)(*args, **dict(step.attrs))
    if isinstance(result, tuple):
        result = result[0]  # residuals of a composite that has an expression of its own
    return backend.as_array(result)


fused = Fused()
