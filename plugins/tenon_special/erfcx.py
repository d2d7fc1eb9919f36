"""The scaled complementary error function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon import ops
from tenon.ops.elementwise import FloatUnary


class Erfcx(FloatUnary):
    """``exp(x ** 2) erfc(x)``."""

    grad_name = "SpecialErfcxBackward0"
    saves = ("x", "out")
    public = False

    def forward(self, xp: Any, x: Any, *, out: Any = None) -> Any:
        """The product up to 6, the asymptotic series from there."""
        w = x.astype(np.float64)
        near, far = xp.minimum(w, 6.0), xp.maximum(w, 6.0)
        part = tail = xp.ones_like(far)
        for k in range(1, 20):
            part = -part * (2 * k - 1) / (2 * far * far)
            tail = tail + part
        with np.errstate(over="ignore"):
            product = xp.exp(near * near) * ops.erfc.forward(xp, near)
            return xp.where(w < 6, product, tail / (far * math.sqrt(math.pi))).astype(x.dtype, copy=False)

    def vjp_x(self, f: Any, g: Any, out: Any, x: Any) -> Any:
        return f.mul(g, f.sub(f.mul(f.mul(x, 2.0), out), 2 / math.sqrt(math.pi)))


erfcx = Erfcx()
