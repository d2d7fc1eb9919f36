"""Names of the elementwise functions of one real number that a library of mathematics has.

Tensors have a method for each, generated code a function; ``sqrt`` counts as one of them, roundings do not.
"""

from __future__ import annotations

TRANSCENDENTAL = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "sigmoid",
)  # fmt: skip
#: What kind of number an element is.
PREDICATES = ("isnan", "isinf", "isfinite", "signbit")
