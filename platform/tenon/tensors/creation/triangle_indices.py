"""Row and column indices of triangles of matrices."""

from __future__ import annotations

import numpy as np


def indices(counts: np.ndarray, first: np.ndarray, dtype: np.dtype | type) -> np.ndarray:
    """Return rows and columns, ``[2, sum(counts)]``, of ``counts[i]`` elements of row ``i`` from column
    ``first[i]`` on."""
    result = np.empty((2, int(counts.sum())), dtype)
    result[0] = np.repeat(np.arange(counts.size, dtype=dtype), counts)
    shift = np.repeat(first - np.cumsum(counts) + counts, counts)
    np.add(np.arange(result.shape[1]), shift, result[1], casting="unsafe")
    return result


def upper(rows: int, columns: int, offset: int, dtype: np.dtype | type) -> np.ndarray:
    """Return rows and columns, ``[2, n]``, of the elements on and above a diagonal."""
    first = np.clip(np.arange(rows) + offset, 0, columns)
    return indices(columns - first, first, dtype)


def lower(rows: int, columns: int, offset: int, dtype: np.dtype | type) -> np.ndarray:
    """Return rows and columns, ``[2, n]``, of the elements on and below a diagonal."""
    counts = np.clip(np.arange(1, rows + 1) + offset, 0, columns)
    return indices(counts, np.zeros_like(counts), dtype)
