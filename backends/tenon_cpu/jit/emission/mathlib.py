"""Exponentials, logarithms and related functions as formulas that LLVM vectorises.

LLVM vectorises a loop only if it knows every function in it, and it does not know those of the C library. For
float32 (and 16-bit floats) the functions here are polynomials after argument reduction, without branches or
tables; every one is correct at infinities, NaN, both zeros, overflow and denormal results, and within 4 units
in the last place elsewhere (``tests/backends/jit/test_codegen.py`` measures them). For float64 the C library
is called.

The language of the formulas is that of ``tenon.kernels.expressions`` with statements, and the functions
``fma(a, b, c)``; ``poly(x, c0, c1, ...)``, lowest coefficient first; ``bits(x)`` and ``real_of_bits(i)``
between float32 and int32 of the same bits; ``real(i)``, which converts from int32.
"""

from __future__ import annotations

from tenon.extend import expressions
from tenon_cpu.jit.emission import angles as mathlib_angles

#: Function -> its formula in float32, of ``x`` (and ``y``).
FORMULAS: dict[str, str] = {
    **mathlib_angles.FORMULAS,
    # 2^k e^r with |r| <= ln(2) / 2. k is rounded by adding 1.5 * 2^23; 2^k is built of two factors, so that
    # results below the normal range are rounded, not flushed to 0, and those above become infinite. Where the
    # result is 0, the argument is replaced by 0: a masked score, exp(-inf), would otherwise have denormal
    # intermediate results, with which processors are ten times slower.
    "exp": (
        """
none = x < -104.0
x = 0.0 if none else x
x = 89.0 if x > 89.0 else x"""
        + mathlib_angles.EXP_PARTS
        + """
p = p * real_of_bits((h + 127) << 23) * real_of_bits((k - h + 127) << 23)
return 0.0 if none else p
"""
    ),
    "exp2": (
        """
x = -151.0 if x < -151.0 else x
x = 129.0 if x > 129.0 else x
t = x + 12582912.0
k = bits(t) - 1262485504
r = (x - (t - 12582912.0)) * 0.6931471805599453
p = poly(r, 0.5, 0.16666665459, 0.041665795894, 0.0083334519073, 0.0013981999507, 0.00019875691500)
p = fma(p * r, r, r) + 1.0
h = k >> 1
return p * real_of_bits((h + 127) << 23) * real_of_bits((k - h + 127) << 23)
"""
    ),
    "expm1": (
        """
s = poly(x, 0.5, 0.16666666667, 0.041666666667, 0.0083333333333, 0.0013888888889, 0.00019841269841,
    2.4801587302e-05)
return x * fma(s, x, 1.0) if abs(x) < 0.4 else exp(x) - 1.0
"""
    ),
    # e ln(2) + ln(m) with m in [sqrt(1/2), sqrt(2)); arguments below the normal range are scaled first.
    "log": (
        """
small = x < 1.1754943508222875e-38
y = x * 8388608.0 if small else x
i = bits(y) - 1060439283
k = i >> 23
m = real_of_bits(bits(y) - (k << 23)) - 1.0
e = real(k) - 23.0 if small else real(k)
z = m * m
p = poly(m, 0.33333331174, -0.24999993993, 0.20000714765, -0.16668057665, 0.14249322787,
    -0.12420140846, 0.11676998740, -0.11514610310, 0.070376836292)
p = p * m * z
p = fma(e, -0.000212194440, p)
p = fma(z, -0.5, p)
p = fma(e, 0.693359375, m + p)
p = p if x < inf else x
p = -inf if x == 0.0 else p
return nan if x < 0.0 else p
"""
    ),
    "log2": (
        """
return log(x) * 1.4426950408889634
"""
    ),
    "log10": (
        """
return log(x) * 0.4342944819032518
"""
    ),
    # The rounding of 1 + x cancels in the quotient.
    "log1p": (
        """
u = 1.0 + x
d = u - 1.0
y = log(u) * (x / d)
y = x if d == 0.0 else y
return x if x == inf else y
"""
    ),
    "tanh": (
        """
a = abs(x)
z = x * x
q = poly(z, -0.333332819422, 0.133314422036, -0.0537397155531, 0.0206390887954, -0.00570498872745)
near = x * fma(q, z, 1.0)
far = copysign(1.0 - 2.0 / (exp(a + a) + 1.0), x)
return near if a < 0.625 else far
"""
    ),
    "sigmoid": (
        """
return 1.0 / (1.0 + exp(-x))
"""
    ),
    # A polynomial in x^2 below 1, and 1 - erfc above.
    "erf": (
        """
a = abs(x)
z = x * x
near = x * poly(z, 1.12837916585, -0.376126266667, 0.112835947152, -0.0268542120106,
    0.00518908742343, -0.000801686428717, 7.87587506269e-05)
return near if a < 1.0 else copysign(1.0 - erfc(a), x)
"""
    ),
    # exp(-x^2) / (1 + x) times a polynomial in t = (x - 2) / (x + 2), both quotients by one division. Only
    # the upper half of x's digits is squared, which is exact: to round x^2 would cost x^2 units in the last
    # place.
    "erfc": (
        """
a = abs(x)
s = 11.0 if a > 11.0 else a
u = s + 1.0
v = s + 2.0
q = 1.0 / (u * v)
p = poly((s - 2.0) * u * q, 0.76618707, -0.25997499093906473, 0.03781315498416283,
    0.04254022278508143, -0.025233357152394695, -0.0005428278049322387, 0.0038828717415171536,
    0.0001942230212375103, -0.0005761916416069919, -0.0001430899202915923)
head = real_of_bits(bits(s) & -4096)
e = exp(-head * head) * poly((head - s) * (head + s), 1.0, 1.0, 0.5, 0.16666667, 0.041666668)
far = p * e * (v * q)
return 2.0 - far if x < 0.0 else far
"""
    ),
}

#: Formulas for 16-bit floats, whose rounding hides a relative error of 1e-5: Abramowitz and Stegun 7.1.26
#: with three more terms, for all arguments.
SHORT: dict[str, str] = {
    "erfc": (
        """
a = abs(x)
t = 1.0 / (1.0 + 0.3275911 * a)
p = poly(t, 0.18501197498925018, 0.181305327840161, 0.2025650249183898, 0.03568888290027237,
    0.4349513279587626, -0.3870095181839422, 0.4861846486839383, -0.13869747924110734)
e = p * t * exp(-x * x)
return 2.0 - e if x < 0.0 else e
"""
    ),
}

#: Functions of the C library, by their names for float64; the names of those for float32 end in f.
LIBRARY = expressions.MATHEMATICS - {"sigmoid"}

#: Formulas that also serve float64.
WIDE: dict[str, str] = {"sigmoid": FORMULAS["sigmoid"]}
