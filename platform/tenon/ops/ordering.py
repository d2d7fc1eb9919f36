"""Positions of elements: in sorted order, of non-zero ones, and where others would be inserted."""

from __future__ import annotations

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.sharding_rule import along

_INT = np.dtype(np.int64)


class Argsort(Primitive):
    """Indices that put ``x`` in order along ``axis``, or the part from ``start`` to ``stop``; NaN counts
    as largest; always stable."""

    kind = Kind.INDEX

    def sharding_rule(self, x, *, axis, descending=False, start=0, stop=None):
        """The other axes are independent."""
        return along(x.shape, [axis])

    def infer(self, x, *, axis, descending=False, start=0, stop=None):
        """int64 in the shape of ``x``, or of the part of it."""
        if stop is None or not x.shape:
            return Aval(x.shape, _INT)
        return Aval((*x.shape[:axis], stop - start, *x.shape[axis + 1 :]), _INT)

    def forward(self, xp, x, *, axis, descending=False, start=0, stop=None):
        """Descending order is stable too: the mirrored order of the mirrored input."""
        if not x.ndim:
            return xp.zeros((), _INT)
        if x.dtype.kind == "V":
            x = x.astype(np.float32)  # NumPy does not sort bfloat16 with NaN correctly
        if descending:
            order = xp.flip(xp.argsort(xp.flip(x, axis), axis=axis, kind="stable"), axis)
            order = x.shape[axis] - 1 - order
        else:
            order = xp.argsort(x, axis=axis, kind="stable")
        if stop is not None:
            order = order[(slice(None),) * axis + (slice(start, stop),)].copy()
        return order.astype(_INT, copy=False)


class Nonzero(Primitive):
    """Indices of the non-zero elements, one row each."""

    kind = Kind.INDEX

    def forward(self, xp, x):
        """Rows in C order."""
        rows = xp.stack(xp.nonzero(xp.atleast_1d(x)), axis=1).astype(_INT)
        return rows[:, : x.ndim]  # a 0-d input was made a vector; drop that axis


class Searchsorted(Primitive):
    """Insertion points of ``y`` into sorted ``x`` (last axis), as int64."""

    kind = Kind.INDEX
    inputs = ("x", "y")

    def infer(self, x, y, *, right=False):
        """``y``'s shape."""
        return Aval(tuple(y.shape), _INT)

    def forward(self, xp, x, y, *, right=False):
        """Row by row when ``x`` has several rows."""
        side = "right" if right else "left"
        if x.ndim == 1:
            return xp.searchsorted(x, y, side=side).astype(_INT)
        rows = [
            xp.searchsorted(a, b, side=side)
            for a, b in zip(x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1]), strict=True)
        ]
        return xp.stack(rows).reshape(y.shape).astype(_INT)


argsort, nonzero, searchsorted = Argsort(), Nonzero(), Searchsorted()
