"""Scalars in an optimizer's state: stored as 0-d tensors, computed in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import Tensor

_FLOAT64 = np.dtype(np.float64)


def scalar(f: Any, p: Any, value: float, dtype: Any = np.float32) -> Any:
    """Return a 0-d state entry for ``p``."""
    return f.new_full(p, shape=(), value=value, dtype=np.dtype(dtype))


def number(f: Any, value: Any) -> Any:
    """Return the value of a 0-d state entry: a Python float, or a tensor that a recorder can trace."""
    return f.cast(value, dtype=_FLOAT64) if isinstance(value, Tensor) else float(value.item())


def stored(f: Any, old: Any, value: Any) -> Any:
    """Return ``value`` as a state entry like ``old``; the value of ``old``, even NaN, has no effect."""
    return f.zeros_like(old) + value


def at_most(first: Any, second: Any) -> Any:
    """Return the minimum of two numbers; under a recorder the comparison becomes a guard."""
    return second if second < first else first


def epsilon(p: Any) -> float:
    """Return the machine epsilon of the dtype of ``p``."""
    return 2.0**-52 if p.dtype.itemsize == 8 else 2.0**-23


def root_mean_square(f: Any, x: Any) -> Any:
    """Return the root mean square of all elements of ``x``, 0-d."""
    return f.sqrt(f.mean(f.mul(x, x), axes=tuple(range(x.ndim))))


def norm(f: Any, x: Any) -> Any:
    """Return the Euclidean norm of all elements of ``x``, 0-d."""
    return f.sqrt(f.sum(f.mul(x, x), axes=tuple(range(x.ndim))))
