"""Scattered maxima, minima and products: ``scatter_reduce`` with "amax", "amin" and "prod"."""

from __future__ import annotations

import numpy as np

from tenon.engine.op import Kind, Primitive
from tenon.engine.types import Operand, OpNamespace
from tenon.ops.indexing import scatter


def extreme_identity(dtype: np.dtype, reduce: str) -> float:
    """Return the identity of a maximum (or minimum) in a dtype: the smallest (or largest) number."""
    if dtype.kind == "b":
        return reduce == "amin"
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return int(limits.min if reduce == "amax" else limits.max)
    return float("-inf") if reduce == "amax" else float("inf")


class ScatterExtreme(Primitive):
    """A copy of ``x`` in which each element is the largest (``amax``) or smallest of itself and the elements
    of ``y`` whose ``index`` points at it; without ``include_self`` of the latter only, if there are any.

    All elements that equal the result share the gradient, as in PyTorch even ``x`` without ``include_self``.
    """

    kind = Kind.INDEX
    inputs = ("x", "index", "y")
    saves = ("x", "index", "y", "out")
    grad_name = "ScatterReduceBackward0"

    def infer(self, x, index, y, *, axis, reduce, include_self=True):
        """``x``'s own aval."""
        return scatter.infer(x, index, y, axis=axis)

    def forward(self, xp, x, index, y, *, axis, reduce, include_self=True):
        """Scatter with ``reduce``, over the identity if ``x`` is not included."""
        if not include_self:
            x = scatter.forward(xp, x, index, extreme_identity(x.dtype, reduce), axis=axis)
        return scatter.forward(xp, x, index, y, axis=axis, reduce=reduce)

    def _shares(
        self, f: OpNamespace, g: Operand, out: Operand, x: Operand, index: Operand, y: Operand, axis: int
    ) -> tuple[Operand, ...]:
        """Return where ``x`` and ``y`` equal the result, as numbers, and ``g`` per tied element."""
        window = f.index(y, key=tuple(slice(0, s) for s in index.shape))
        own = f.cast(f.eq(x, out), dtype=x.dtype)
        others = f.cast(f.eq(window, f.gather(out, index, axis=axis)), dtype=x.dtype)
        return own, others, f.div(g, f.scatter(own, index, others, axis=axis, reduce="add"))

    def vjp_x(self, f, g, out, x, index, y, *, axis, reduce, include_self=True):
        own, _, share = self._shares(f, g, out, x, index, y, axis)
        slope = f.mul(own, share)
        return slope if include_self else f.scatter(slope, index, 0.0, axis=axis)

    def vjp_y(self, f, g, out, x, index, y, *, axis, reduce, include_self=True):
        _, others, share = self._shares(f, g, out, x, index, y, axis)
        return f.window_of(f.mul(others, f.gather(share, index, axis=axis)), shape=tuple(y.shape))


class ScatterProd(Primitive):
    """A copy of ``x`` in which each element is multiplied by the elements of ``y`` whose ``index``
    points at it."""

    kind = Kind.INDEX
    inputs = ("x", "index", "y")
    saves = ("x", "index", "y")
    grad_name = "ScatterReduceBackward0"

    def infer(self, x, index, y, *, axis):
        """``x``'s own aval."""
        return scatter.infer(x, index, y, axis=axis)

    def forward(self, xp, x, index, y, *, axis):
        """Scatter with ``reduce="multiply"``."""
        return scatter.forward(xp, x, index, y, axis=axis, reduce="multiply")

    # The product divided by x; where x is 0, the product without it.
    def vjp_x(self, f, g, out, x, index, y, *, axis):
        other = f.where(f.eq(x, 0), 1, x)
        return f.div(f.mul(g, f.scatter_prod(other, index, y, axis=axis)), other)

    def vjp_y(self, f, g, out, x, index, y, *, axis):
        shape = tuple(y.shape)
        y = f.index(y, key=tuple(slice(0, s) for s in index.shape))
        zero = f.cast(f.eq(y, 0), dtype=x.dtype)
        zeros = f.scatter(f.new_full(x, shape=tuple(x.shape), value=0), index, zero, axis=axis, reduce="add")
        alone = f.logical_and(f.eq(y, 0), f.eq(f.gather(zeros, index, axis=axis), 1))
        part = f.mul(g, f.scatter_prod(x, index, f.where(alone, 1, y), axis=axis))
        product = f.mul(g, f.scatter_prod(x, index, y, axis=axis))
        slope = f.where(
            alone,
            f.gather(part, index, axis=axis),
            f.div(f.gather(product, index, axis=axis), f.where(f.eq(y, 0), 1, y)),
        )
        # With several zeros the slope is 0, but its own derivative is not that of this formula.
        several = f.logical_and(f.eq(y, 0), f.gt(f.gather(zeros, index, axis=axis), 1))
        slope = f.once(
            slope, several, operation="src when >1 zeros in src are scattered to the same position"
        )
        return f.window_of(slope, shape=shape)


scatter_extreme, scatter_prod = ScatterExtreme(), ScatterProd()
