"""Arithmetic that several rules share: scalars in the state, norms, weight decay.

Scalars in the state are stored as 0-d tensors and computed in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import Operand, OpNamespace, Tensor
from tenon.optim.types import Hyperparameters

_FLOAT64 = np.dtype(np.float64)


def scalar(f: OpNamespace, p: Operand, value: float, dtype: np.dtype | type = np.float32) -> Operand:
    """Return a 0-d state entry for ``p``."""
    return f.new_full(p, shape=(), value=value, dtype=np.dtype(dtype))


def number(f: OpNamespace, value: Operand) -> float | Tensor:
    """Return the value of a 0-d state entry: a Python float, or a tensor that a recorder can trace."""
    return f.cast(value, dtype=_FLOAT64) if isinstance(value, Tensor) else float(value.item())


def stored(f: OpNamespace, old: Operand, value: Operand) -> Operand:
    """Return ``value`` as a state entry like ``old``; the value of ``old``, even NaN, has no effect."""
    return f.zeros_like(old) + value


def may_decide(number: object) -> bool:
    """Whether a rule may branch on a number such as ``h.step``: not in a captured graph, which serves all
    steps; compute there with ``positive_part`` and ``where``."""
    return getattr(number, "may_decide", True)


def positive_part(value: Any) -> Any:  # a number, or one that a recorder computes for every run
    """Return ``max(value, 0)`` without a comparison."""
    return (abs(value) + value) / 2


def at_most(first: float | Tensor, second: float | Tensor) -> float | Tensor:
    """Return the minimum of two numbers; under a recorder the comparison becomes a guard."""
    return second if second < first else first


def epsilon(p: Operand) -> float:
    """Return the machine epsilon of the dtype of ``p``."""
    return 2.0**-52 if p.dtype.itemsize == 8 else 2.0**-23


def root_mean_square(f: OpNamespace, x: Operand) -> Operand:
    """Return the root mean square of all elements of ``x``, 0-d."""
    return f.sqrt(f.mean(f.mul(x, x), axes=tuple(range(x.ndim))))


def norm(f: OpNamespace, x: Operand) -> Operand:
    """Return the Euclidean norm of all elements of ``x``, 0-d."""
    return f.sqrt(f.sum(f.mul(x, x), axes=tuple(range(x.ndim))))


def weight_decayed(p: Operand, g: Operand, h: Hyperparameters) -> tuple[Operand, Operand]:
    """Return ``p`` and ``g`` after weight decay, which shrinks ``p`` if decoupled and else adds to ``g``."""
    if not h.weight_decay:
        return p, g
    if h.decoupled_weight_decay:
        return p * (1 - h.lr * h.weight_decay), g
    return p, g + h.weight_decay * p
