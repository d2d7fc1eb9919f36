"""The product of all other elements by NumPy's running products, from both sides."""

from __future__ import annotations

import numpy as np


def prod_of_others(x: np.ndarray, *, axes: tuple[int, ...]) -> np.ndarray:
    """Return, for each element, the product of all other elements along ``axes``."""
    order = (*(a for a in range(x.ndim) if a not in axes), *axes)
    transposed = x.transpose(order)
    lines = transposed.reshape(*transposed.shape[: x.ndim - len(axes)], -1)
    before, after = np.ones_like(lines), np.ones_like(lines)
    if lines.shape[-1] > 1:
        np.multiply.accumulate(lines[..., :-1], -1, out=before[..., 1:])
        np.multiply.accumulate(lines[..., :0:-1], -1, out=after[..., -2::-1])
    result = np.multiply(before, after, out=before).reshape(transposed.shape)
    return np.ascontiguousarray(result.transpose(np.argsort(order)))


__all__ = ["prod_of_others"]
