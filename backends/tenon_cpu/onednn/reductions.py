"""Sums and means of blocked arrays over the spatial axes, optionally with the batch axis; results are plain.

They multiply ``[N, C / b, S, b]`` by a row of ones: matrix products add short rows faster than NumPy's
reductions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tenon.extend import Attrs, Operand, Thunk
from tenon_cpu.onednn.layouts import Assigned


def reducible(rank: int, axes: Sequence[int]) -> bool:
    """Whether the axes are all spatial axes, with or without the batch axis."""
    spatial = tuple(range(2, rank))
    return rank > 2 and tuple(sorted(axes)) in (spatial, (0, *spatial))


def _prepare(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned, mean: bool
) -> Thunk | None:
    layout = layouts.inputs[0]
    x, out = ins[0], outs[0]
    axes = tuple(a % x.ndim for a in attrs["axes"])
    if not layout.block or not reducible(x.ndim, axes) or x.dtype != np.float32 or not out.flags.c_contiguous:
        return None
    n, channels, positions = x.shape[0], x.shape[1], math.prod(x.shape[2:])
    blocks = channels // layout.block
    view = x.reshape(n, blocks, positions, layout.block)
    count = positions * (n if 0 in axes else 1)
    weights = np.full((1, positions), 1.0 / count if mean else 1.0, np.float32)
    if 0 not in axes:
        target = out.reshape(n, blocks, 1, layout.block)

        def run_each() -> None:
            np.matmul(weights, view, out=target)

        return run_each
    parts, flat = np.empty((n, blocks, 1, layout.block), np.float32), out.reshape(-1)

    def run() -> None:
        np.matmul(weights, view, out=parts)
        np.add.reduce(parts.reshape(n, channels), axis=0, out=flat)

    return run


def prepare_sum(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """Prepare ``sum``."""
    return _prepare(ins, attrs, outs, layouts, mean=False)


def prepare_mean(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """Prepare ``mean``."""
    return _prepare(ins, attrs, outs, layouts, mean=True)


PREPARE = {"sum": prepare_sum, "mean": prepare_mean}
