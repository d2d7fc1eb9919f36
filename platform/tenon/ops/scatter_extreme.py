"""Scattered maxima and minima: ``scatter_reduce`` with "amax" and "amin"."""

from __future__ import annotations

import numpy as np

from tenon.engine.op import Kind, Primitive
from tenon.engine.types import Operand, OpNamespace
from tenon.ops.indexing import scatter


def worst(dtype: np.dtype, reduce: str) -> float:
    """Return the identity of a maximum (or minimum) in a dtype: the smallest (or largest) number."""
    if dtype.kind == "b":
        return reduce == "amin"
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return int(limits.min if reduce == "amax" else limits.max)
    return float("-inf") if reduce == "amax" else float("inf")


class ScatterExtreme(Primitive):
    """A copy of ``x`` in which each element is the largest (``amax``) or smallest of itself and those of
    ``y`` whose ``index`` points at it; without ``include_self`` of the latter alone, where there are any.

    All that reach it share the gradient; as in torch, ``x`` counts among them even if it is left out.
    """

    kind = Kind.INDEX
    inputs = ("x", "index", "y")
    saves = ("x", "index", "y", "out")
    grad_name = "ScatterReduceBackward0"

    def infer(self, x, index, y, *, axis, reduce, include_self=True):
        """``x``'s own aval."""
        return scatter.infer(x, index, y, axis=axis)

    def forward(self, xp, x, index, y, *, axis, reduce, include_self=True):
        """As scatter's own."""
        if not include_self:
            x = scatter.forward(xp, x, index, worst(x.dtype, reduce), axis=axis)
        return scatter.forward(xp, x, index, y, axis=axis, reduce=reduce)

    def _shares(
        self, f: OpNamespace, g: Operand, out: Operand, x: Operand, index: Operand, y: Operand, axis: int
    ) -> tuple[Operand, ...]:
        window = f.index(y, key=tuple(slice(0, s) for s in index.shape))
        own = f.cast(f.eq(x, out), dtype=x.dtype)
        theirs = f.cast(f.eq(window, f.gather(out, index, axis=axis)), dtype=x.dtype)
        return own, theirs, f.div(g, f.scatter(own, index, theirs, axis=axis, reduce="add"))

    def vjp_x(self, f, g, out, x, index, y, *, axis, reduce, include_self=True):
        own, _, share = self._shares(f, g, out, x, index, y, axis)
        slope = f.mul(own, share)
        return slope if include_self else f.scatter(slope, index, 0.0, axis=axis)

    def vjp_y(self, f, g, out, x, index, y, *, axis, reduce, include_self=True):
        _, theirs, share = self._shares(f, g, out, x, index, y, axis)
        return f.window_of(f.mul(theirs, f.gather(share, index, axis=axis)), shape=tuple(y.shape))


scatter_extreme = ScatterExtreme()
