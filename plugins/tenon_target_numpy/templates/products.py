"""Products of matrices."""

from __future__ import annotations

import numpy as np


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Return ``x @ weight.T + bias`` over the last axis of ``x``."""
    rows = x.reshape(-1, x.shape[-1]) if x.ndim > 2 and x.size else x
    result = (rows @ weight.T).reshape(*x.shape[:-1], *weight.shape[:-1])
    return result if bias is None else result + bias


def addmm(x: np.ndarray, a: np.ndarray, b: np.ndarray, beta: float = 1, alpha: float = 1) -> np.ndarray:
    """Return ``beta * x + alpha * (a @ b)``."""
    product = a @ b if alpha == 1 else (a @ b) * alpha
    if beta == 0:
        return product
    return product + (x if beta == 1 else x * beta)


def sparse_linear(
    x: np.ndarray, values: np.ndarray, columns: np.ndarray, starts: np.ndarray, bias: np.ndarray | None
) -> np.ndarray:
    """Return ``x @ W.T + bias``; row r of W has ``values[starts[r]:starts[r + 1]]`` at those ``columns``."""
    weight = np.zeros((starts.size - 1, x.shape[-1]), x.dtype)
    np.add.at(weight, (np.repeat(np.arange(starts.size - 1), np.diff(starts)), columns), values)
    result = x @ weight.T
    return result if bias is None else result + bias
