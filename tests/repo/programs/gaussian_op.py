"""A new elementwise op as CONTRIBUTING describes it: its class, and its sample."""

import numpy as np

from tenon.ops.elementwise import FloatUnary
from tenon.testing.samples import add, normal


class Gaussian(FloatUnary):
    """``exp(-x * x)``."""

    expression = "exp(-a * a)"
    saves = ("x", "out")
    aliases = ("bell",)
    autocast = "float32"

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.mul(out, f.mul(x, -2.0)))


gaussian = Gaussian()

add("gaussian", "matrix", normal(3, 4), reference=lambda x: np.exp(-x * x))
