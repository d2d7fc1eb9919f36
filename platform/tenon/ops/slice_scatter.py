"""Replace a part of a copy: the op of ``select_scatter`` and ``slice_scatter``."""

from __future__ import annotations

from tenon.engine.op import Kind, Primitive


class Place(Primitive):
    """A copy of ``x`` with ``x[key] = y``; ``key`` consists of integers and slices."""

    kind = Kind.INDEX
    inputs = ("x", "y")

    def infer(self, x, y, *, key):
        """The aval of ``x``."""
        return x

    def forward(self, xp, x, y, *, key):
        """Copy, then assign."""
        result = xp.array(x)
        result[key] = y
        return result

    def vjp_x(self, f, g, out, x, y, *, key):
        return f.place(g, f.new_full(g, shape=tuple(y.shape), value=0), key=key)

    def vjp_y(self, f, g, out, x, y, *, key):
        return f.index(g, key=key)


place = Place()
