"""Formulas of inverse trigonometric and hyperbolic functions in float32; ``mathlib.py`` has the language.

They are correct at infinities, NaN and both zeros. The arguments are ``x`` and ``y``.
"""

from __future__ import annotations

#: ``exp(x)`` is ``p 2^k``, and ``h`` half of ``k``.
EXP_PARTS = """
t = fma(x, 1.4426950408889634, 12582912.0)
k = bits(t) - 1262485504
n = t - 12582912.0
r = fma(n, -0.693145751953125, x)
r = fma(n, -1.428606765330187e-06, r)
p = poly(r, 0.5, 0.16666665459, 0.041665795894, 0.0083334519073, 0.0013981999507, 0.00019875691500)
p = fma(p * r, r, r) + 1.0
h = k >> 1"""
#: ``s + t`` is the arcsine of ``s``, which is ``|x|``, or ``sqrt((1 - |x|) / 2)`` where ``far``.
_ARCSINE_PARTS = """
a = abs(x)
far = a > 0.5
z = (1.0 - a) * 0.5 if far else a * a
s = sqrt(z) if far else a
t = s * z * poly(z, 0.16666753927978512, 0.07495241769384176, 0.04547709895593162, 0.024147600515006567,
    0.0422185676526755)"""

FORMULAS: dict[str, str] = {
    # The arctangent of q = smaller / larger in [0, 1], corrected by the division's remainder e, is added to
    # or subtracted from 0, pi/2 or pi. Sums are compensated, so that the error is that of the last rounding.
    # Here x is the ordinate.
    "atan2": (
        """
a = abs(x)
b = abs(y)
n = b if a > b else a
d = a if a > b else b
q = n / d
q = 0.0 if (a == 0.0) & (b == 0.0) else q
q = 1.0 if (a == inf) & (b == inf) else q
e = fma(-q, d, n) / d
e = e if abs(e) < 1.0 else 0.0
z = q * q
p = poly(z, -0.3333329908914473, 0.19998548284883494, -0.1426424168625809, 0.10952185803225331,
    -0.08403450398180953, 0.057957594556014756, -0.0311778466410182, 0.010914606079310996,
    -0.00179362176394551)
t = fma(p * z, q, e * poly(z, 1.0, -0.83, 0.33))
back = copysign(1.0, y)
turn = -back if a > b else back
v = q * turn
base = 1.57079637050628662109375 if a > b else (3.1415927410125732421875 if back < 0.0 else 0.0)
rest = -4.37113900018624283e-08 if a > b else (-8.74227800037248566e-08 if back < 0.0 else 0.0)
s = base + v
return copysign(s + ((base - s) + v + fma(t, turn, rest)), x)
"""
    ),
    "atan": (
        """
return atan2(x, 1.0)
"""
    ),
    # x + x^3 p(x^2) below 1/2, and from there on twice the arcsine of sqrt((1 - x) / 2).
    "asin": (
        _ARCSINE_PARTS
        + """
r = 1.57079637050628662109375 - (s + s)
r = r + (1.57079637050628662109375 - r - (s + s) - 4.37113900018624283e-08 - (t + t))
return copysign(r if far else s + t, x)
"""
    ),
    "acos": (
        _ARCSINE_PARTS
        + """
u = copysign(s, x)
w = copysign(t, x)
near = 1.57079637050628662109375 - u
near = near + (1.57079637050628662109375 - near - u - 4.37113900018624283e-08 - w)
beyond = 3.1415927410125732421875 - (s + s)
beyond = beyond + (3.1415927410125732421875 - beyond - (s + s) - 8.74227800037248566e-08 - (t + t))
past = beyond if x < 0.0 else s + s + (t + t)
return past if far else near
"""
    ),
    # Computed from half of e^a, which overflows only where the result does.
    "sinh": (
        """
a = abs(x)
z = x * x
near = fma(x * z, poly(z, 0.16666666488721404, 0.008333350597890391, 0.00019836066274856248,
    2.817439508794686e-06), x)
h = half_exp(a)
return near if a < 1.0 else copysign(h - 0.25 / h, x)
"""
    ),
    "cosh": (
        """
h = half_exp(abs(x))
return h + 0.25 / h
"""
    ),
    "half_exp": (
        "x = 90.0 if x > 90.0 else x\n"
        + EXP_PARTS
        + """
return p * real_of_bits((h + 126) << 23) * real_of_bits((k - h + 127) << 23)
"""
    ),
    "atanh": (
        """
a = abs(x)
z = x * x
near = fma(x * z, poly(z, 0.33333298844417875, 0.20002587659695303, 0.1422148716786465, 0.11833959702733457,
    0.05098553589466664, 0.1771964426154531), x)
return near if a < 0.5 else copysign(0.5 * log((1.0 + a) / (1.0 - a)), x)
"""
    ),
}

__all__ = ["EXP_PARTS", "FORMULAS"]
