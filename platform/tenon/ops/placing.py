"""A part of a copy replaced: ``select_scatter`` and ``slice_scatter``."""

from __future__ import annotations

from tenon.engine.op import Kind, Primitive


class Place(Primitive):
    """A copy of ``x`` with ``y``, of the part's shape, at ``key`` of integers and slices."""

    kind = Kind.INDEX
    inputs = ("x", "y")

    def infer(self, x, y, *, key):
        """``x``'s own aval."""
        return x

    def forward(self, xp, x, y, *, key):
        """A copy, and what is written into it."""
        result = xp.array(x)
        result[key] = y
        return result

    def vjp_x(self, f, g, out, x, y, *, key):
        return f.place(g, f.new_full(g, shape=tuple(y.shape), value=0), key=key)

    def vjp_y(self, f, g, out, x, y, *, key):
        return f.index(g, key=key)


place = Place()
