"""Errors of double backward where a gradient's formula cannot be differentiated: ``once`` and ``refused``.

A gradient rule multiplies by ``f.once(slope, mask, operation=...)``. Differentiating that a second time
raises GradError if any element of ``mask`` is set, where the formula's own derivative would be wrong.
"""

from __future__ import annotations

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.errors import GradError


class Once(Primitive):
    """A copy of ``x`` whose backward raises GradError if any element of ``mask`` is set.

    Where ``mask`` is set, the derivative of ``x`` is not that of the formula which computed it. ``operation``
    names the operation in the error.
    """

    kind = Kind.ELEMENTWISE
    inputs = ("x", "mask")
    saves = ("mask",)

    def infer(self, x, mask, *, operation):
        """The shape and dtype of ``x``."""
        return Aval(tuple(x.shape), x.dtype)

    def forward(self, xp, x, mask, *, operation):
        """Copy ``x``."""
        return xp.array(x)

    def vjp_x(self, f, g, out, x, mask, *, operation):
        return f.refused(g, mask, operation=operation)


class Refused(Primitive):
    """A copy of ``x``; raises GradError if any element of ``mask`` is set."""

    kind = Kind.ELEMENTWISE
    inputs = ("x", "mask")

    def infer(self, x, mask, *, operation):
        """The shape and dtype of ``x``."""
        return Aval(tuple(x.shape), x.dtype)

    def forward(self, xp, x, mask, *, operation):
        """Check ``mask``, then copy."""
        if bool(xp.any(mask)):
            raise GradError(f"Double backward is unsupported for {operation}.")
        return xp.array(x)

    def vjp_x(self, f, g, out, x, mask, *, operation):
        return g


once, refused = Once(), Refused()
