"""The error function and its complement.

Below 1, ``erf(x) / x`` is a polynomial in ``x^2``. From 1 on, ``erfc(x) exp(x^2) (1 + x)`` is a polynomial in
``t = (x - k) / (x + k)``, which maps ``[1, inf)`` into the unit interval. The coefficients are Chebyshev
interpolants (40 digits) for float64, and least-maximum fits for float32. Errors: at most 3 units in the last
place for erf, 10 for erfc (for ``x`` just below 1, the subtraction from 1 loses three bits).
"""

from __future__ import annotations

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.types import Array, ArrayNamespace

#: Polynomials of erf(x) / x in x^2 for |x| <= 1, and of erfc(x) (x + 1) exp(x^2) in (x - k) / (x + k) above.
ERF_NEAR64 = (
    1.1283791670955125738, -0.37612638903183748056, 0.11283791670954878666, -0.026866170645076793248,
    0.0052239776248180144673, -0.00085483269808337899052, 0.00012055331111642710923,
    -0.000014925595266831181565,
    1.6461000484121368033e-6, -1.6350312701054695011e-7, 1.4659775274047435814e-8, -1.137284885679167367e-9,
    5.9571761477489114044e-11,
)  # fmt: skip
ERF_FAR64 = (
    0.69155117605643307415, -0.20683126504048622013, 0.11479674120103710733, -0.040647578516950684701,
    -0.0030998090543708088407, 0.018750997234779506987, -0.01727508731993408727, 0.010070828103346952563,
    -0.0039718084073313811903, 0.00086504543394831241797, 0.000070624173294477157883,
    -0.00012112777496112804523,
    0.00002762261426174466918, 8.0967076414983943538e-6, -5.3635989909620418884e-6, -1.3778221103165723928e-7,
    8.0077404866146591078e-7, -1.0424699119609192368e-7, -1.0658800590638645192e-7, 4.4869821055121060577e-8,
    -5.2906226839347382631e-9,
)  # fmt: skip
ERF_NEAR32 = (
    1.12837916585, -0.376126266667, 0.112835947152, -0.0268542120106, 0.00518908742343, -0.000801686428717,
    7.87587506269e-5,
)  # fmt: skip
ERF_FAR32 = (
    0.766187007935557, -0.25997472858236476, 0.03781681617269672, 0.042528483945528404, -0.025300615140547326,
    -0.00035436502038264304, 0.004156151339434388, -0.0008315679395720619,
)  # fmt: skip


def polynomial(xp: ArrayNamespace, coefficients: tuple[float, ...], x: Array) -> Array:
    """Evaluate by Horner's rule, lowest coefficient first, in the dtype of ``x`` and in one buffer."""
    result = xp.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        result *= x
        result += x.dtype.type(c)
    return result


def _wide(x: Array) -> Array:
    """Return ``x`` in float32 or float64, for which there are coefficients."""
    return x if x.dtype.itemsize >= 4 else x.astype(np.float32)


def _near(xp: ArrayNamespace, x: Array) -> Array:
    """Return ``erf`` of ``|x| <= 1``."""
    return x * polynomial(xp, ERF_NEAR64 if x.dtype.itemsize == 8 else ERF_NEAR32, x * x)


def _far(xp: ArrayNamespace, size: Array) -> Array:
    """Return ``erfc`` of ``size >= 1``.

    ``exp(-x^2)`` is computed in two factors: rounding the square would cost x^2 units in the last place.
    """
    double = size.dtype.itemsize == 8
    size = xp.minimum(size, size.dtype.type(30.0 if double else 11.0))
    k = 3.75 if double else 2.0
    tail = polynomial(xp, ERF_FAR64 if double else ERF_FAR32, (size - k) / (size + k))
    steps = 65536.0 if double else 256.0
    head = xp.floor(size * steps) * (1.0 / steps)
    tail *= xp.exp(-head * head)
    tail *= xp.exp((head - size) * (head + size))
    tail /= size + 1.0
    return tail


class Erf(Primitive):
    """The error function: ``2 / sqrt(pi)`` times the integral of ``exp(-t^2)`` from 0."""

    kind = Kind.ELEMENTWISE
    promotion = "float"
    saves = ("x",)
    expression = "erf(a)"
    public = True
    inplace_functions = True
    foreach = True

    def infer(self, x):
        """The input's own aval."""
        return Aval(x.shape, x.dtype)

    def forward(self, xp, x):
        """Evaluate both ranges, then select; 16-bit floats in float32."""
        w = _wide(x)
        size = xp.abs(w)
        far = xp.copysign(1.0 - _far(xp, xp.maximum(size, w.dtype.type(1))), w)
        near = _near(xp, xp.clip(w, -1, 1))
        return xp.where(size < 1, near, far).astype(x.dtype, copy=False)

    # d erf(x) = 2 / sqrt(pi) exp(-x^2) dx
    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.mul(f.exp(f.neg(f.mul(x, x))), 1.1283791670955126))


class Erfc(Erf):
    """``1 - erf(x)``, accurate also where it is tiny."""

    expression = "erfc(a)"
    foreach = True

    def forward(self, xp, x):
        """Evaluate both ranges, then select; 16-bit floats in float32."""
        w = _wide(x)
        size = xp.abs(w)
        far = _far(xp, xp.maximum(size, w.dtype.type(1)))
        near = 1.0 - _near(xp, xp.clip(w, -1, 1))
        return xp.where(size < 1, near, xp.where(w < 0, 2.0 - far, far)).astype(x.dtype, copy=False)

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.mul(f.exp(f.neg(f.mul(x, x))), -1.1283791670955126))


erf, erfc = Erf(), Erfc()
