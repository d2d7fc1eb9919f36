"""Rows of a float32 table by index, and sums of rows by index or by segment."""

from __future__ import annotations

from tenon_cpu.jit.compiler.compile import kernel


@kernel("void(float32[:,::1], int64[::1], float32[:,::1], int64[::1], int64, int64)")
def gather(table, indices, out, outside, start, stop):
    """``table[indices]``; ``outside[0]`` becomes 1 if an index is out of range, whose row is not written."""
    rows, width = table.shape
    for r in range(start, stop):
        k = indices[r]
        if k < 0 or k >= rows:
            outside[0] = 1
        else:
            for i in range(width):
                out[r, i] = table[k, i]


@kernel("void(float32[:,::1], int64[::1], int64, float32[:,::1], int64, int64)")
def scatter_add(g, indices, ignored, out, start, stop):
    """Rows ``start`` to ``stop`` of a table: sums of the rows of ``g`` with its index, in their order."""
    width = g.shape[1]
    for k in range(start, stop):
        for i in range(width):
            out[k, i] = 0
    for r in range(indices.size):
        k = indices[r]
        if start <= k < stop and k != ignored:
            for i in range(width):
                out[k, i] += g[r, i]


@kernel("void(float32[:,::1], int64[::1], float32[:,::1], int64, int64)")
def segment_sum(x, bounds, out, start, stop):
    """Sums of the rows of ``x`` from each of ``bounds`` to the next."""
    width = x.shape[1]
    for k in range(start, stop):
        out_row = out[k]
        for i in range(width):
            out_row[i] = 0
        for r in range(bounds[k], bounds[k + 1]):
            row = x[r]
            for i in range(width):
                out_row[i] += row[i]
