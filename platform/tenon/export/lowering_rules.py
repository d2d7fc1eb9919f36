"""Rules of ``lower`` for ops that no target has to know in every form.

``RULES`` hold for all graphs; those of a target take precedence. ``SIZED_RULES`` hold where sizes may change:
there a rule computes from a count, which is one integer expression, what an op computes from a float.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

from tenon.engine.types import Operand, OpNamespace
from tenon.errors import NotFusableError
from tenon.ops.dtype_queries import is_complex

#: ``rule(f, *args, **attrs)`` computes the result of an op by functions of ``f``; NotFusableError where it
#: does not apply.
Rule: TypeAlias = Callable[..., Operand]


def real(f: OpNamespace, x: Operand) -> Operand:
    """Return ``x`` itself, which is real."""
    if is_complex(x):
        raise NotFusableError("the real part of a complex number has no decomposition.")
    return x


def var(
    f: OpNamespace, x: Operand, *, axes: tuple[int, ...], correction: float = 1, keepdims: bool = False
) -> Operand:
    """Return the variance, divided by degrees of freedom that are computed from the number of elements."""
    if is_complex(x):
        raise NotFusableError("the variance of complex numbers has no decomposition where sizes may change.")
    squares = f.square(f.sub(x, f.mean(x, axes=axes, keepdims=True)))
    count = f.new_full(x, shape=(), value=math.prod(x.shape[a] for a in axes), dtype=x.dtype)
    freedom = f.maximum(f.sub(count, float(correction)), 0.0)
    return f.div(f.sum(squares, axes=axes, keepdims=keepdims), freedom)


RULES: Mapping[str, Rule] = {"real": real}
SIZED_RULES: Mapping[str, Rule] = {"var": var}
