"""Weighted reads of arrays at given indices: ``tap_sum``, ``tap_spread`` and ``tap_dot``.

The three are the partial maps of one trilinear form, so each one's gradients are the other two. Layouts:
``x[N, C, cells]``, ``weights[N, taps, P]``, ``places[N, taps, P]`` (int64 indices of cells; -1 for none)
and ``g[N, C, P]``. ``grid.py`` computes weights and places from a sampling grid.
"""

from __future__ import annotations

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.types import Array, ArrayNamespace
from tenon.ops.dtype_queries import dtype_of, in_float32


def _tap_index(xp: ArrayNamespace, places: Array, t: int, channels: int) -> tuple[Array, Array]:
    """Return the indices of tap ``t`` for every channel, ``[N, C, P]``, and which are valid, ``[N, 1,
    P]``."""
    index = places[:, t][:, None]
    valid = index >= 0
    index = xp.where(valid, index, 0)
    return xp.broadcast_to(index, (index.shape[0], channels, index.shape[2])), valid


class TapSum(Primitive):
    """``out[n, c, p]``: the sum over taps of ``weights[n, t, p] * x[n, c, places[n, t, p]]``."""

    kind = Kind.INDEX
    inputs = ("x", "weights", "places")
    saves = ("x", "weights", "places")
    reads = {"x": ("weights", "places"), "weights": ("x", "places"), "places": ()}

    def infer(self, x, weights, places):
        """One value per channel and place."""
        return Aval((*x.shape[:2], places.shape[2]), dtype_of(x))

    @in_float32
    def forward(self, xp, x, weights, places):
        """One gather per tap."""
        result = xp.zeros((*x.shape[:2], places.shape[2]), x.dtype)
        if not x.size:
            return result
        for t in range(places.shape[1]):
            index, valid = _tap_index(xp, places, t, x.shape[1])
            part = xp.take_along_axis(x, index, 2) * weights[:, t][:, None]
            result += xp.where(valid, part, xp.zeros((), x.dtype))
        return result

    def vjp_x(self, f, g, out, x, weights, places):
        return f.tap_spread(g, weights, places, cells=x.shape[2])

    def vjp_weights(self, f, g, out, x, weights, places):
        return f.tap_dot(g, x, places)


class TapSpread(Primitive):
    """``g`` times the weights, added to the cells at ``places``: the transpose of ``tap_sum`` in ``x``."""

    kind = Kind.INDEX
    inputs = ("g", "weights", "places")
    saves = ("g", "weights", "places")
    reads = {"g": ("weights", "places"), "weights": ("g", "places"), "places": ()}

    def infer(self, g, weights, places, *, cells):
        """``[N, C, cells]``."""
        return Aval((*g.shape[:2], cells), dtype_of(g))

    @in_float32
    def forward(self, xp, g, weights, places, *, cells):
        """One scatter per tap."""
        result = xp.zeros((*g.shape[:2], cells), g.dtype)
        if not result.size:
            return result
        rows = xp.arange(g.shape[0])[:, None, None]
        columns = xp.arange(g.shape[1])[None, :, None]
        for t in range(places.shape[1]):
            index, valid = _tap_index(xp, places, t, g.shape[1])
            part = xp.where(valid, g * weights[:, t][:, None], xp.zeros((), g.dtype))
            xp.add.at(result, (rows, columns, index), part)
        return result

    def vjp_g(self, f, g, out, gradient, weights, places, *, cells):
        return f.tap_sum(g, weights, places)

    def vjp_weights(self, f, g, out, gradient, weights, places, *, cells):
        return f.tap_dot(gradient, g, places)


class TapDot(Primitive):
    """``out[n, t, p]``: the sum over channels of ``g[n, c, p] * x[n, c, places[n, t, p]]``."""

    kind = Kind.INDEX
    inputs = ("g", "x", "places")
    saves = ("g", "x", "places")
    reads = {"g": ("x", "places"), "x": ("g", "places"), "places": ()}

    def infer(self, g, x, places):
        """One value per tap."""
        return Aval(tuple(places.shape), dtype_of(g))

    def forward(self, xp, g, x, places):
        """One gather per tap."""
        result = xp.zeros(places.shape, g.dtype)
        if not x.size:
            return result
        for t in range(places.shape[1]):
            index, valid = _tap_index(xp, places, t, x.shape[1])
            part = xp.where(valid, g * xp.take_along_axis(x, index, 2), xp.zeros((), g.dtype))
            result[:, t] = xp.sum(part, axis=1)
        return result

    def vjp_g(self, f, g, out, gradient, x, places):
        return f.tap_sum(x, g, places)

    def vjp_x(self, f, g, out, gradient, x, places):
        return f.tap_spread(gradient, g, places, cells=x.shape[2])


tap_sum, tap_spread, tap_dot = TapSum(), TapSpread(), TapDot()
