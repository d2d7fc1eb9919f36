"""Sums over consecutive rows: the bags of ``embedding_bag``.

``offsets[B]`` has the first row of each of B segments, in ascending order; the last ends at ``end``.
"""

from __future__ import annotations

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.types import Array, ArrayNamespace
from tenon.errors import IndexRangeError, ShapeError
from tenon.ops.dtype_queries import in_float32


def _segments(xp: ArrayNamespace, offsets: Array, end: int) -> tuple[Array, Array]:
    """Return where segments begin and how many rows each has; raise unless ``offsets`` are valid."""
    if offsets.size:
        if int(offsets[0]) != 0:
            raise ShapeError(
                "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from"
                f" position 0. However, got {int(offsets[0])}"
            )
        if int(offsets[-1]) > end:
            raise ShapeError(
                f"offsets[-1] can not be greater than input's length {end} but got offsets[-1] of"
                f" {int(offsets[-1])}"
            )
    counts = xp.diff(xp.append(offsets, end))
    if offsets.size and int(counts.min()) < 0:
        raise IndexRangeError(f"offsets must not decrease, got {offsets.tolist()}")
    return offsets, counts


class SegmentSum(Primitive):
    """Sums of the rows of ``x[L, ...]`` from each offset to the next: ``[B, ...]``; 0 for an empty
    segment."""

    kind = Kind.INDEX
    inputs = ("x", "offsets")
    saves = ("offsets",)
    grad_name = "EmbeddingBagBackward0"

    def infer(self, x, offsets, *, end):
        """One row per segment."""
        return Aval((offsets.shape[0], *x.shape[1:]), x.dtype)

    @in_float32
    def forward(self, xp, x, offsets, *, end):
        """``add.reduceat`` in NumPy, else ``add.at``."""
        starts, counts = _segments(xp, offsets, end)
        result = xp.zeros((offsets.shape[0], *x.shape[1:]), x.dtype)
        nonempty = counts > 0
        if x.size and xp is np and x.dtype.kind != "V":
            result[nonempty] = np.add.reduceat(x[:end], starts[nonempty], axis=0)
        elif x.size:
            xp.add.at(result, xp.repeat(xp.arange(counts.shape[0]), counts.tolist()), x[:end])
        return result

    def vjp_x(self, f, g, out, x, offsets, *, end):
        return f.segment_spread(g, offsets, end=end, rows=x.shape[0])


class SegmentSpread(Primitive):
    """The transpose of ``segment_sum``: row b of ``x`` repeated for the rows of segment b, 0 past ``end``."""

    kind = Kind.INDEX
    inputs = ("x", "offsets")
    saves = ("offsets",)

    def infer(self, x, offsets, *, end, rows):
        """``x``'s shape with ``rows`` rows."""
        return Aval((rows, *x.shape[1:]), x.dtype)

    def forward(self, xp, x, offsets, *, end, rows):
        """Repeat each row by the length of its segment."""
        _, counts = _segments(xp, offsets, end)
        result = xp.zeros((rows, *x.shape[1:]), x.dtype)
        result[:end] = xp.repeat(x, counts.tolist(), axis=0)
        return result

    def vjp_x(self, f, g, out, x, offsets, *, end, rows):
        return f.segment_sum(g, offsets, end=end)


segment_sum, segment_spread = SegmentSum(), SegmentSpread()
