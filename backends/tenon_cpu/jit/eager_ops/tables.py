"""Embeddings and sums of segments of large float32 arrays, by compiled kernels."""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.eager_ops.calls import FLOAT, INDEX, indices_fit, plain, share
from tenon_cpu.jit.loops import tables


def embedding(weight: np.ndarray, indices: np.ndarray, *, out: np.ndarray | None = None) -> np.ndarray:
    """Rows of the table, in ``out`` if given; declines if an index is out of range."""
    weight, width = plain(weight), weight.shape[1]
    out, outside = np.empty((*indices.shape, width), FLOAT) if out is None else out, np.zeros(1, INDEX)
    arrays = (weight, indices.reshape(-1), out.reshape(-1, width), outside)
    share(tables.gather, arrays, indices.size, out.size)
    return NotImplemented if outside[0] else out


def embedding_grad(g: np.ndarray, indices: np.ndarray, *, rows: int, padding_idx: int = -1) -> np.ndarray:
    """The gradient of the table: each thread sums its part of the rows, in the order of the indices."""
    out = np.empty((rows, g.shape[-1]), FLOAT)
    arrays = (plain(g).reshape(-1, g.shape[-1]), indices.reshape(-1), padding_idx, out)
    share(tables.scatter_add, arrays, rows, g.size + out.size)
    return out


def segment_sum(x: np.ndarray, offsets: np.ndarray, *, end: int) -> np.ndarray:
    """Sums of the rows between offsets; declines if the offsets are not in order or out of range."""
    bounds = np.append(offsets, end)
    if not indices_fit(bounds) or not 0 == bounds[0] <= end <= x.shape[0] or (bounds[1:] < bounds[:-1]).any():
        return NotImplemented
    out = np.empty((offsets.size, *x.shape[1:]), FLOAT)
    rows = plain(x).reshape(x.shape[0], -1)
    share(tables.segment_sum, (rows, bounds, out.reshape(offsets.size, rows.shape[1])), offsets.size, x.size)
    return out
