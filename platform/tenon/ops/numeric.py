"""Less common elementwise functions, and indices along an axis."""

from __future__ import annotations

import numpy as np

from tenon.engine.aval import Aval, shape_of
from tenon.engine.op import Kind, Primitive
from tenon.engine.sharding_rule import along
from tenon.engine.types import Array, ArrayNamespace, Operand
from tenon.ops.dtype_queries import dtype_of, in_float32, is_complex
from tenon.ops.elementwise import Binary, FloatUnary
from tenon.ops.special import erf

_INT = np.dtype(np.int64)


class Copysign(Binary):
    """Magnitude of ``x`` with the sign of ``y``."""

    ufunc = "copysign"
    grad_overloads = {(False, True): "CopysignBackward1"}
    promotion = "float"
    saves = ("x", "out")
    expression = "copysign(a, b)"

    # The slope is -1 where the sign changed, else 1; at 0 it is 0, as in PyTorch.
    def vjp_x(self, f, g, out, x, y):
        ratio = f.where(f.eq(x, 0), 0.0, f.div(out, f.where(f.eq(x, 0), 1.0, x)))
        return f.sum_to(f.mul(g, ratio), shape=shape_of(x))

    def vjp_y(self, f, g, out, x, y):
        return f.sum_to(f.mul(g, 0), shape=shape_of(y))


class Heaviside(Binary):
    """0 below zero, 1 above, ``y`` at zero."""

    expression = "b if a == 0 else (1 if a > 0 else 0)"
    inplace_form = "method"

    def forward(self, xp, x, y, *, out=None):
        """Also for integers, which NumPy's ``heaviside`` does not support."""
        result = xp.where(x == 0, y, xp.where(x > 0, x.dtype.type(1), x.dtype.type(0)))
        return result.astype(x.dtype, copy=False)


class Nextafter(Binary):
    """The next number after ``x`` in the direction of ``y``; ``y`` where both are equal."""

    ufunc = "nextafter"
    promotion = "float"
    saves = ("x", "y")
    second_is_tensor = True

    def forward(self, xp, x, y, *, out=None):
        """NumPy's loop for float16 returns ``x`` where both are equal, which are zeros of either sign."""
        if x.dtype.char != "e":
            return xp.nextafter(x, y, out=out)
        result = xp.where(x == y, y, xp.nextafter(x, y))
        if out is None:
            return result
        out[...] = result
        return out

    # the result follows x; where both are equal it is y, and PyTorch's gradient is 0
    def vjp_x(self, f, g, out, x, y):
        return f.sum_to(f.where(f.eq(x, y), 0, g), shape=x.shape)

    def vjp_y(self, f, g, out, x, y):
        return f.sum_to(f.mul(g, 0), shape=y.shape)


class Frexp(Primitive):
    """Mantissas in [0.5, 1) and exponents of 2."""

    kind = Kind.ELEMENTWISE
    saves = ("x",)
    outputs = 2

    def infer(self, x):
        """The input's own aval, and 32-bit integers."""
        return Aval(x.shape, x.dtype), Aval(x.shape, np.dtype(np.int32))

    def forward(self, xp, x):
        """The namespace's ``frexp``."""
        return xp.frexp(x)

    def vjp_x(self, f, g, out, x):
        return f.mul(g[0], f.pow(2.0, f.neg(f.cast(f.frexp(x)[1], dtype=dtype_of(x)))))


class Gcd(Binary):
    """Greatest common divisor of integers."""

    ufunc = "gcd"
    inplace_functions = True
    second_is_tensor = True


class Lcm(Binary):
    """Least common multiple of integers."""

    ufunc = "lcm"
    inplace_functions = True
    second_is_tensor = True


class WholePower(Binary):
    """``x ** y`` of integers; a negative power is rounded towards zero: 0 unless ``|x|`` is 1."""

    public = False

    def forward(self, xp, x, y, *, out=None):
        """NumPy rejects negative powers; where ``|x|`` is 1 they are ``x ** (y & 1)``."""
        negative = xp.less(y, 0)
        fraction = xp.where(xp.equal(xp.abs(x), 1), xp.power(x, xp.bitwise_and(y, 1)), 0)
        result = xp.where(negative, fraction, xp.power(x, xp.where(negative, 0, y)))
        return result.astype(xp.result_type(x, y), copy=False)


class Xlogy(Binary):
    """``x * log(y)``, and 0 where ``x`` is 0 (unless ``y`` is NaN)."""

    grad_overloads = {(True, False): "XlogyBackward1", (False, True): "XlogyBackward2"}
    promotion = "float"
    saves = ("x", "y")
    inplace_functions = True
    orders = True
    first_argument = "number"

    def forward(self, xp, x, y, *, out=None):
        """The product, without the logarithm where ``x`` is 0; a number is rounded to the other's dtype."""
        x, y = (a.dtype.type(v) if isinstance(v, (int, float)) else v for v, a in ((x, y), (y, x)))
        zero = (x == 0) & ~xp.isnan(y)
        return xp.where(zero, 0, x * xp.log(xp.where(zero, 1, y))).astype(xp.result_type(x, y), copy=False)

    def vjp_x(self, f, g, out, x, y):
        slope = f.where(f.logical_and(f.eq(x, 0), f.le(y, 0)), 0.0, f.log(y))
        return f.sum_to(f.mul(g, slope), shape=shape_of(x))

    def vjp_y(self, f, g, out, x, y):
        return f.sum_to(f.mul(g, f.div(x, y)), shape=shape_of(y))


class Sinc(FloatUnary):
    """``sin(pi x) / (pi x)``, 1 at 0."""

    saves = ("x",)

    def forward(self, xp, x, *, out=None):
        """The namespace's ``sinc``; 16-bit floats in float32."""
        wide = x if x.dtype.itemsize >= 4 else x.astype(np.float32)
        return xp.sinc(wide).astype(x.dtype, copy=False)

    # (cos(pi x) - sinc(x)) / x
    def vjp_x(self, f, g, out, x):
        zero = f.eq(x, 0)
        safe = f.where(zero, 1.0, x)
        angle = f.mul(safe, 3.141592653589793)
        slope = f.div(f.sub(f.cos(angle), f.div(f.sin(angle), angle)), safe)
        return f.mul(g, f.conj(f.where(zero, 0.0, slope)))


class Erfinv(FloatUnary):
    """The number whose ``erf`` is ``x``."""

    saves = ("out",)
    computes_in_float32 = True
    inplace_functions = False
    autocast_cuda = "float32"

    def forward(self, xp, x, *, out=None):
        """A rational approximation (error below 1e-3), then two steps of Newton's method."""
        y = x if x.dtype.itemsize >= 4 else x.astype(np.float32)
        guess = xp.where(xp.abs(y) <= 0.7, _central(y), _tail(xp, xp.clip(y, -1, 1)))
        inner = xp.abs(y) < 1
        result = xp.where(inner, guess, 0)
        for _ in range(2):
            result = result - (erf.forward(xp, result) - y) / (1.1283791670955126 * xp.exp(-result * result))
        edge = xp.where(xp.abs(y) == 1, xp.copysign(xp.inf, y), xp.nan)
        return xp.where(inner, result, edge).astype(x.dtype, copy=False)

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.mul(f.exp(f.mul(out, out)), 0.886226925452758))


def _central(y: Operand) -> Operand:
    """Approximate ``erfinv`` for ``|y| <= 0.7``."""
    z = y * y
    numerator = ((-0.140543331 * z + 0.914624893) * z - 1.645349621) * z + 0.886226899
    denominator = (((0.012229801 * z - 0.329097515) * z + 1.442710462) * z - 2.118377725) * z + 1
    return y * numerator / denominator


def _tail(xp: ArrayNamespace, y: Array) -> Array:
    """Approximate ``erfinv`` for ``0.7 < |y| < 1``."""
    remainder = (1 - xp.abs(y)) / 2
    z = xp.sqrt(-xp.log(xp.where(remainder > 0, remainder, 0.5)))
    numerator = ((1.641345311 * z + 3.429567803) * z - 1.624906493) * z - 1.970840454
    return xp.copysign(numerator, y) / ((1.637067800 * z + 3.543889200) * z + 1)


class RunningExtreme(Primitive):
    """Index of the largest (or smallest) element so far along ``axis``; of equal ones the last;
    NaN counts as extreme."""

    kind = Kind.INDEX

    def sharding_rule(self, x, *, axis, largest=True):
        """The other axes are independent."""
        return along(x.shape, [axis])

    def infer(self, x, *, axis, largest=True):
        """int64 of the input's shape."""
        return Aval(x.shape, _INT)

    def forward(self, xp, x, *, axis, largest=True):
        """The last position up to each element at which the running extreme was attained."""
        if not x.ndim:
            return xp.zeros((), _INT)
        best = (xp.maximum if largest else xp.minimum).accumulate(x, axis=axis)
        attained = (x == best) | (x != x)
        steps = xp.arange(x.shape[axis]).reshape((-1,) + (1,) * (x.ndim - axis - 1))
        return xp.maximum.accumulate(xp.where(attained, steps, 0), axis=axis).astype(_INT, copy=False)


class Logcumsumexp(FloatUnary):
    """Logarithm of the running sum of exponentials along ``axis``."""

    saves = ("x", "out")
    plain = True
    public = False

    def sharding_rule(self, x, *, axis=0):
        """The other axes are independent."""
        return along(x.shape, [axis])

    def infer(self, x, *, axis=0):
        """The input's own aval."""
        return Aval(x.shape, x.dtype)

    @in_float32
    def forward(self, xp, x, *, axis):
        """``logaddexp`` from the left, without overflow; complex numbers relative to the largest real
        part."""
        if x.size and x.ndim and x.dtype.kind == "c":
            peak = x.real.max(axis, keepdims=True)
            return xp.log(xp.cumsum(xp.exp(x - peak), axis)) + peak
        return xp.logaddexp.accumulate(x, axis=axis) if x.ndim else x.copy()

    # exp(x_i) sum_(j >= i) g_j exp(-out_j), in logarithms: positive and negative g separately
    def vjp_x(self, f, g, out, x, *, axis):
        if not x.shape:
            return g
        if is_complex(x):
            peak = f.amax(f.real(x), axes=(axis,), keepdims=True)
            shares = f.mul(g, f.conj(f.exp(f.sub(peak, out))))
            total = f.flip(f.cumsum(f.flip(shares, axes=(axis,)), axis=axis), axes=(axis,))
            return f.mul(total, f.conj(f.exp(f.sub(x, peak))))
        parts = []
        for sign in (1.0, -1.0):
            part = f.mul(g, sign)
            positive = f.gt(part, 0.0)  # elsewhere e^-60000, which is 0 and has derivatives
            size = f.where(positive, f.log(f.where(positive, part, 1.0)), -6e4)
            tail = f.flip(f.logcumsumexp(f.flip(f.sub(size, out), axes=(axis,)), axis=axis), axes=(axis,))
            parts.append(f.exp(f.add(tail, x)))
        return f.sub(parts[0], parts[1])


class ModeIndex(Primitive):
    """Last index of the most frequent value (of several, of the smallest) along ``axis``, which keeps size
    1."""

    kind = Kind.INDEX

    def infer(self, x, *, axis):
        """int64, with ``axis`` of size 1."""
        return Aval((*x.shape[:axis], 1, *x.shape[axis + 1 :]), _INT)

    def forward(self, xp, x, *, axis):
        """Sort, then find the end of the longest run of equal elements."""
        x = x.astype(np.float32) if x.dtype.kind == "V" else x  # NumPy cannot order bfloat16 among NaN
        order = xp.argsort(x, axis=axis, kind="stable")
        rows = xp.moveaxis(xp.take_along_axis(x, order, axis), axis, -1)
        steps = xp.arange(rows.shape[-1])
        starts = xp.concatenate(
            [xp.ones_like(rows[..., :1], dtype=bool), rows[..., 1:] != rows[..., :-1]], -1
        )
        run_starts = xp.maximum.accumulate(xp.where(starts, steps, 0), axis=-1)
        end = xp.argmax(steps - run_starts, axis=-1, keepdims=True)
        return xp.take_along_axis(order, xp.moveaxis(end, -1, axis), axis).astype(_INT, copy=False)


copysign, heaviside, nextafter, gcd, lcm = Copysign(), Heaviside(), Nextafter(), Gcd(), Lcm()
whole_power, xlogy, sinc, erfinv = WholePower(), Xlogy(), Sinc(), Erfinv()
logcumsumexp, frexp = Logcumsumexp(), Frexp()
running_extreme, mode_index = RunningExtreme(), ModeIndex()
