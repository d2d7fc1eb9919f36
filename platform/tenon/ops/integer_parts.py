"""Integer parts and remainders: ``floor``, ``round``, ``fmod``, ``floor_divide``."""

from __future__ import annotations

from tenon.compat.saved_readers import always, trunc_mode
from tenon.engine.aval import Aval, refuse_kinds
from tenon.ops.dtype_queries import refuse_zero
from tenon.ops.elementwise import Binary, Unary


class Floor(Unary):
    """Largest integer not above ``x``."""

    ufunc = "floor"
    expression = "floor(a)"
    out = "kept"
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.mul(g, 0)


class Ceil(Unary):
    """Smallest integer not below ``x``."""

    ufunc = "ceil"
    expression = "ceil(a)"
    out = "kept"
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.mul(g, 0)


class Trunc(Unary):
    """Integer part: rounded towards zero."""

    ufunc = "trunc"
    expression = "trunc(a)"
    aliases = ("fix",)
    out = "kept"
    saved_names = {"rounding_mode": trunc_mode}
    foreach = True

    def vjp_x(self, f, g, out, x):
        return f.mul(g, 0)


class Round(Unary):
    """Rounded to the nearest integer, halves to even."""

    fills_out = True
    out = "kept"
    foreach = True

    def infer(self, x, *, decimals=0):
        """The input's own aval."""
        return Aval(x.shape, x.dtype)

    def forward(self, xp, x, *, decimals=0, out=None):
        """Round to ``decimals`` digits after the point."""
        refuse_kinds(self.name, "b", x)
        if out is not None and decimals < 0 and x.dtype.kind in "iu":
            out[...] = xp.round(x, decimals)  # with ``out``, NumPy divides integers into floats
            return out
        return xp.round(x, decimals, out=out)

    def expression_for(self, args, attrs):
        """Only rounding to integers can be fused."""
        return None if attrs.get("decimals") else "rint(a)"

    def torch_name(self, args, attrs):
        """``RoundBackward1`` if ``decimals`` was passed."""
        return "RoundBackward1" if "decimals" in attrs else "RoundBackward0"

    def vjp_x(self, f, g, out, x, *, decimals=0):
        return f.mul(g, 0)


class Remainder(Binary):
    """Python's modulo: the result has the divisor's sign, but zero the dividend's, as in PyTorch."""

    grad_overloads = {(False, False): "RemainderBackward1"}
    saves = ("x", "y")
    reads = {"x": (), "y": ("x", "y")}
    checks_integers = True
    fills_out = True
    first_argument = "number"

    def forward(self, xp, x, y, *, out=None):
        """As in PyTorch: integer division by zero is an error, not 0."""
        refuse_kinds(self.name, "b", x, y)
        refuse_zero(xp, x, y)
        if (y if hasattr(y, "dtype") else x).dtype.kind in "iu":
            return xp.remainder(x, y, out=out)
        rest = xp.remainder(x, y)
        rest = xp.where(rest == 0, xp.copysign(rest, x), rest)
        if out is None:
            return rest
        out[...] = rest
        return out

    def vjp_x(self, f, g, out, x, y):
        return f.sum_to(g, shape=x.shape)

    def vjp_y(self, f, g, out, x, y):
        return f.sum_to(f.neg(f.mul(g, f.floor_divide(x, y))), shape=y.shape)


class Fmod(Binary):
    """C's modulo: the result has the dividend's sign."""

    grad_overloads = {(False, False): "FmodBackward1"}
    saves = ("x", "y")
    reads = {"x": (), "y": ("x", "y")}
    checks_integers = True
    fills_out = True

    def forward(self, xp, x, y, *, out=None):
        """As in PyTorch: integer division by zero is an error, not 0."""
        refuse_kinds(self.name, "b", x, y)
        refuse_zero(xp, x, y)
        return xp.fmod(x, y, out=out)

    def vjp_x(self, f, g, out, x, y):
        return f.sum_to(g, shape=x.shape)

    # d fmod(x, y) = -trunc(x / y) dy, which is (x - fmod(x, y)) / y: x / y may round up to the next number.
    # Where there is no remainder, as for y = 0, the quotient itself is infinite or NaN.
    def vjp_y(self, f, g, out, x, y):
        rest = f.fmod(x, y)
        whole = f.where(f.isfinite(rest), f.round(f.div(f.sub(x, rest), y)), f.trunc(f.div(x, y)))
        return f.sum_to(f.neg(f.mul(g, whole)), shape=y.shape)


class FloorDivide(Binary):
    """``floor(x / y)``; integer division by zero is an error."""

    checks_integers = True
    fills_out = True
    keeps_digits = True
    first_argument = "numbers"
    saved_names = {"rounding_mode": always("floor")}

    def forward(self, xp, x, y, *, out=None):
        """Floor division in the common dtype."""
        refuse_kinds(self.name, "b", x, y)
        refuse_zero(xp, x, y)
        return xp.floor_divide(x, y, out=out)

    def vjp_x(self, f, g, out, x, y):
        return f.sum_to(f.mul(g, 0), shape=x.shape)

    def vjp_y(self, f, g, out, x, y):
        return f.sum_to(f.mul(g, 0), shape=y.shape)


floor, ceil, trunc, round = Floor(), Ceil(), Trunc(), Round()
remainder, fmod, floor_divide = Remainder(), Fmod(), FloorDivide()
