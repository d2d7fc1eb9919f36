"""Functions of numbers that change from run to run: see ``scalars.py``."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

#: Scalar functions: how they are computed, and how an emitted program spells them.
FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
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
