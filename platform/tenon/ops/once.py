"""Gradients whose own slope is not known everywhere: ``once`` marks where, ``refused`` says so."""

from __future__ import annotations

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.errors import GradError


class Once(Primitive):
    """A copy of ``x``; backward through it is an error if ``mask`` holds anywhere: the slope there is not
    that of the formula which made it. ``what`` is said of it."""

    kind = Kind.ELEMENTWISE
    inputs = ("x", "mask")
    saves = ("mask",)

    def infer(self, x, mask, *, what):
        """``x``'s own aval."""
        return Aval(tuple(x.shape), x.dtype)

    def forward(self, xp, x, mask, *, what):
        """A copy."""
        return xp.array(x)

    def vjp_x(self, f, g, out, x, mask, *, what):
        return f.refused(g, mask, what=what)


class Refused(Primitive):
    """A copy of ``x``; GradError if ``mask`` holds anywhere."""

    kind = Kind.ELEMENTWISE
    inputs = ("x", "mask")

    def infer(self, x, mask, *, what):
        """``x``'s own aval."""
        return Aval(tuple(x.shape), x.dtype)

    def forward(self, xp, x, mask, *, what):
        """Look at ``mask``."""
        if bool(xp.any(mask)):
            raise GradError(f"Double backward is unsupported for {what}.")
        return xp.array(x)

    def vjp_x(self, f, g, out, x, mask, *, what):
        return g


once, refused = Once(), Refused()
