"""Functions of the numbers that a program computes for every run: see ``scalars.py``."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

#: Name of a function -> the function, and its call as a format string for generated code.
FUNCTIONS: dict[str, tuple[Callable[..., float], str]] = {
    "add": (operator.add, "{} + {}"),
    "sub": (operator.sub, "{} - {}"),
    "mul": (operator.mul, "{} * {}"),
    "div": (operator.truediv, "{} / {}"),
    "floordiv": (operator.floordiv, "{} // {}"),
    "mod": (operator.mod, "{} % {}"),
    "pow": (operator.pow, "{} ** {}"),
    "neg": (operator.neg, "-{}"),
    "abs": (abs, "abs({})"),
    "min": (min, "min({}, {})"),
    "max": (max, "max({}, {})"),
    "sqrt": (math.sqrt, "sqrt({})"),
}
