"""Single numbers in an optimizer's state: kept as 0-d tensors, computed with in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import Tensor

_FLOAT64 = np.dtype(np.float64)


def scalar(f: Any, p: Any, value: float, dtype: Any = np.float32) -> Any:
    """A 0-d state for ``p``."""
    return f.new_full(p, shape=(), value=value, dtype=np.dtype(dtype))


def number(f: Any, value: Any) -> Any:
    """The number in a 0-d state: a Python float, or a tensor that a recorder can follow."""
    return f.cast(value, dtype=_FLOAT64) if isinstance(value, Tensor) else float(value.item())


def stored(f: Any, old: Any, value: Any) -> Any:
    """``value`` as a state like ``old``, whose own value, NaN too, is forgotten."""
    return f.zeros_like(old) + value


def at_most(first: Any, second: Any) -> Any:
    """The smaller of two numbers; a recorder learns which it was."""
    return second if second < first else first


def epsilon(p: Any) -> float:
    """The distance from 1 to the next number of the dtype of ``p``."""
    return 2.0**-52 if p.dtype.itemsize == 8 else 2.0**-23


def root_mean_square(f: Any, x: Any) -> Any:
    """Over all elements of ``x``, 0-d."""
    return f.sqrt(f.mean(f.mul(x, x), axes=tuple(range(x.ndim))))


def norm(f: Any, x: Any) -> Any:
    """The Euclidean norm of all elements of ``x``, 0-d."""
    return f.sqrt(f.sum(f.mul(x, x), axes=tuple(range(x.ndim))))
