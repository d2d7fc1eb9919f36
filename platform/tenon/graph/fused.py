"""``fused``: the op of a node that stands for a cluster. Backends compile it; else its steps run apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.engine.op import Kind, Op, table
from tenon.graph.cluster import Cluster, Ref, Step


class Fused(Op):
    """A cluster as one call, ``attrs["cluster"]``; not in the op table, since only passes make it."""

    kind = Kind.ELEMENTWISE
    inputs = ("*xs",)
    outputs = 0

    def __init__(self) -> None:
        # Not Op's own: that would put it into the table.
        self.name = self.__name__ = "fused"
        self.variadic, self.simple, self.is_ufunc, self.differentiable = True, False, False, False

    def infer(self, *xs: Any, cluster: Cluster) -> Any:
        """The avals of the cluster's outputs."""
        return tuple(cluster.aval(ref) for ref in cluster.outputs)

    def forward(self, backend: Any, *xs: Any, cluster: Cluster) -> tuple[Any, ...]:
        """The steps one by one, on ``backend``'s kernels."""
        values = list(xs)
        for step in cluster.steps:
            args = [values[a.index] if a.__class__ is Ref else a for a in step.args]
            values.append(_run(backend, step, args))
        return tuple(values[ref.index] for ref in cluster.outputs)

    def replaceable(self, *, cluster: Cluster) -> Sequence[int]:
        """Any operand may be overwritten, if nothing is reduced: all are read before anything is stored."""
        return () if cluster.reduces else range(len(cluster.inputs))

    def __reduce__(self) -> Any:
        return "fused"


def _run(backend: Any, step: Step, args: list[Any]) -> Any:
    op = table[step.op]
    made = backend.kernels[op](*args, **dict(step.attrs))
    if isinstance(made, tuple):
        made = made[0]  # residuals of a composite that has an expression of its own
    return backend.as_array(made)


fused = Fused()
