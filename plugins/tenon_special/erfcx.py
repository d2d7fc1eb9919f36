"""The scaled complementary error function."""

from __future__ import annotations

import math

import numpy as np

from tenon import ops
from tenon.extend import Array, ArrayNamespace, Operand, OpNamespace
from tenon.ops.elementwise import FloatUnary


class Erfcx(FloatUnary):
    """``exp(x ** 2) erfc(x)``."""

    grad_name = "SpecialErfcxBackward0"
    saves = ("x", "out")
    public = False

    def forward(self, xp: ArrayNamespace, x: Array, *, out: Array | None = None) -> Array:
        """Compute the product up to 6, the asymptotic series above."""
        x64 = x.astype(np.float64)
        near, far = xp.minimum(x64, 6.0), xp.maximum(x64, 6.0)
        term = tail = xp.ones_like(far)
        for k in range(1, 20):
            term = -term * (2 * k - 1) / (2 * far * far)
            tail = tail + term
        with np.errstate(over="ignore"):
            product = xp.exp(near * near) * ops.erfc.forward(xp, near)
            return xp.where(x64 < 6, product, tail / (far * math.sqrt(math.pi))).astype(x.dtype, copy=False)

    def vjp_x(self, f: OpNamespace, g: Operand, out: Operand, x: Operand) -> Operand:
        return f.mul(g, f.sub(f.mul(f.mul(x, 2.0), out), 2 / math.sqrt(math.pi)))


erfcx = Erfcx()
