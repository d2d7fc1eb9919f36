"""Look-ups and assignments by index arrays; an index out of range raises IndexError."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

#: A key of NumPy's indexing: slices, integers and arrays.
Key = tuple[Any, ...]


def embedding(
    weight: np.ndarray, indices: np.ndarray, padding_idx: int = -1, by_frequency: bool = False
) -> np.ndarray:
    """Return the rows of ``weight`` at ``indices``."""
    if indices.size and (indices.min() < 0 or indices.max() >= len(weight)):
        raise IndexError(
            f"indices span {indices.min()}..{indices.max()}, but the table has {len(weight)} rows."
        )
    return weight[indices]


def embedding_grad(
    g: np.ndarray, indices: np.ndarray, rows: int, padding_idx: int = -1, by_frequency: bool = False
) -> np.ndarray:
    """Return the rows of ``g`` summed by index."""
    flat, values = indices.reshape(-1), g.reshape(indices.size, g.shape[-1])
    if padding_idx >= 0:
        valid = flat != padding_idx
        flat, values = flat[valid], values[valid]
    if by_frequency and flat.size:
        values = values / np.bincount(flat, minlength=rows)[flat][:, None].astype(g.dtype)
    result = np.zeros((rows, g.shape[-1]), g.dtype)
    np.add.at(result, flat, values)
    return result


def one_hot(indices: np.ndarray, classes: int) -> np.ndarray:
    """Return one-hot vectors on a new last axis."""
    return (indices[..., None] == np.arange(classes)).astype(np.int64)


def embed(x: np.ndarray, shape: tuple[int, ...], key: Key) -> np.ndarray:
    """Return zeros of ``shape`` with ``x`` at ``key``."""
    result = np.zeros(shape, x.dtype)
    result[key] = x
    return result


def place(x: np.ndarray, y: np.ndarray, key: Key) -> np.ndarray:
    """Return a copy of ``x`` with ``y`` at ``key``."""
    result = x.copy()
    result[key] = y
    return result


def put(x: np.ndarray, y: np.ndarray | float, key: Key, accumulate: bool = False) -> np.ndarray:
    """Return a copy of ``x`` with ``y`` written, or added, at ``key``."""
    result = x.copy()
    if accumulate:
        np.add.at(result, key, y)
    else:
        result[key] = y
    return result


def check_indices(index: np.ndarray, size: int) -> None:
    """Raise IndexError unless all indices are from 0 to ``size - 1``."""
    if index.size and (index.min() < 0 or index.max() >= size):
        raise IndexError(f"indices span {index.min()}..{index.max()}, but the axis has {size} elements.")


def gather(x: np.ndarray, index: np.ndarray, axis: int) -> np.ndarray:
    """Return ``x[i, index[i, j]]`` for axis 1, and so on."""
    if not x.ndim or not index.ndim:
        return x.reshape(-1)[index.reshape(-1)].reshape(index.shape)
    check_indices(index, x.shape[axis])
    window = tuple(slice(None) if a == axis else slice(0, s) for a, s in enumerate(index.shape))
    return np.take_along_axis(x[window], index, axis)


def scatter(
    x: np.ndarray, index: np.ndarray, y: np.ndarray | float, axis: int, reduce: str | None = None
) -> np.ndarray:
    """Return a copy of ``x`` with ``y`` written at ``index`` along ``axis``, or combined by ``reduce``."""
    result = x.copy()
    target, rows = result, index
    if not x.ndim or not index.ndim:
        target, rows = result.reshape(-1), index.reshape(-1)
    check_indices(rows, target.shape[axis])
    grid = list(np.ogrid[tuple(slice(0, s) for s in rows.shape)])
    grid[axis] = rows
    values = np.asarray(y, x.dtype)
    if values.ndim:
        values = values[tuple(slice(0, s) for s in index.shape)]
    if reduce is None:
        target[tuple(grid)] = values
    else:
        combine = {"add": np.add, "multiply": np.multiply, "amax": np.maximum, "amin": np.minimum}[reduce]
        combine.at(target, tuple(grid), values)
    return result


def argsort(
    x: np.ndarray, axis: int, descending: bool = False, start: int = 0, stop: int | None = None
) -> np.ndarray:
    """Return the indices that sort ``x`` along ``axis``, or a part of them; the sort is stable."""
    if not x.ndim:
        return np.zeros((), np.int64)
    if descending:
        order = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
        order = x.shape[axis] - 1 - order
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    return order if stop is None else order[(slice(None),) * axis + (slice(start, stop),)]


def searchsorted(x: np.ndarray, y: np.ndarray, right: bool = False) -> np.ndarray:
    """Return where the elements of ``y`` belong in the sorted ``x``, row by row."""
    side = np.searchsorted
    where: Literal["left", "right"] = "right" if right else "left"
    if x.ndim == 1:
        return np.asarray(side(x, y, where), np.int64)
    pairs = zip(x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1]), strict=True)
    return np.stack([side(a, b, where) for a, b in pairs]).reshape(y.shape).astype(np.int64)
