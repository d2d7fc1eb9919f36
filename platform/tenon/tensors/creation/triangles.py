"""Places of triangles, and of whatever else has neighbours in each row."""

from __future__ import annotations

from typing import Any

import numpy as np


def places(many: Any, first: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """Rows and columns, ``[2, sum(many)]``, of ``many[i]`` neighbours in row ``i``, from ``first[i]`` on."""
    result = np.empty((2, int(many.sum())), dtype)
    result[0] = np.repeat(np.arange(many.size, dtype=dtype), many)
    shift = np.repeat(first - np.cumsum(many) + many, many)
    np.add(np.arange(result.shape[1]), shift, result[1], casting="unsafe")
    return result


def upper(rows: int, columns: int, offset: int, dtype: Any) -> np.ndarray[Any, Any]:
    """Those at and above a diagonal."""
    first = np.clip(np.arange(rows) + offset, 0, columns)
    return places(columns - first, first, dtype)


def lower(rows: int, columns: int, offset: int, dtype: Any) -> np.ndarray[Any, Any]:
    """Those at and below a diagonal."""
    many = np.clip(np.arange(1, rows + 1) + offset, 0, columns)
    return places(many, np.zeros_like(many), dtype)
