"""Gradients that can be differentiated again only in part: ``once`` guards them, ``refused`` raises.

A gradient rule multiplies by ``f.once(slope, mask, what=...)``. Differentiating that a second time raises
GradError if any element of ``mask`` is set, where the formula's own derivative would be wrong.
"""

from __future__ import annotations

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.errors import GradError


class Once(Primitive):
    """A copy of ``x`` whose backward raises GradError if any element of ``mask`` is set.

    Where ``mask`` is set, the derivative of ``x`` is not that of the formula which computed it. ``what``
    names the operation in the error.
    """

    kind = Kind.ELEMENTWISE
    inputs = ("x", "mask")
    saves = ("mask",)

    def infer(self, x, mask, *, what):
        """The shape and dtype of ``x``."""
        return Aval(tuple(x.shape), x.dtype)

    def forward(self, xp, x, mask, *, what):
        """Copy ``x``."""
        return xp.array(x)

    def vjp_x(self, f, g, out, x, mask, *, what):
        return f.refused(g, mask, what=what)


class Refused(Primitive):
    """A copy of ``x``; raises GradError if any element of ``mask`` is set."""

    kind = Kind.ELEMENTWISE
    inputs = ("x", "mask")

    def infer(self, x, mask, *, what):
        """The shape and dtype of ``x``."""
        return Aval(tuple(x.shape), x.dtype)

    def forward(self, xp, x, mask, *, what):
        """Check ``mask``, then copy."""
        if bool(xp.any(mask)):
            raise GradError(f"Double backward is unsupported for {what}.")
        return xp.array(x)

    def vjp_x(self, f, g, out, x, mask, *, what):
        return g


once, refused = Once(), Refused()
