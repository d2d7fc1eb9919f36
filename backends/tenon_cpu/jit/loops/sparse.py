"""Products with a float32 matrix in compressed rows."""

from __future__ import annotations

from tenon_cpu.jit.compiler.compile import kernel


@kernel(
    "void(float32[:,::1], float32[::1], uint16[::1], int64[::1], float32[::1], float32[:,::1], int64, int64)"
)
def linear(x, values, columns, starts, bias, out, start, stop):
    """Rows ``start`` to ``stop`` of ``W @ x + bias[:, None]``; four values of a row in one pass."""
    width = x.shape[1]
    for r in range(start, stop):
        out_row = out[r]
        for i in range(width):
            out_row[i] = bias[r]
        k, end = starts[r], starts[r + 1]
        while k + 4 <= end:
            a, b, c, d = values[k], values[k + 1], values[k + 2], values[k + 3]
            p, q, s, t = x[columns[k]], x[columns[k + 1]], x[columns[k + 2]], x[columns[k + 3]]
            for i in range(width):
                out_row[i] += (a * p[i] + b * q[i]) + (c * s[i] + d * t[i])
            k += 4
        while k < end:
            a, p = values[k], x[columns[k]]
            for i in range(width):
                out_row[i] += a * p[i]
            k += 1


#: Rows of a tile, whose columns fill a cache line.
TILE = 16


@kernel("void(float32[:,::1], float32[:,::1], int64, int64)")
def transpose(x, out, start, stop):
    """``out = x.T`` for tiles ``start`` to ``stop`` of the rows of ``x``."""
    rows, width = x.shape
    for tile in range(start, stop):
        first = tile * 16
        if first + 16 <= rows:
            part = x[first : first + 16]
            for k in range(width):
                out_row = out[k, first : first + 16]
                for i in range(16):
                    out_row[i] = part[i, k]
        else:
            for k in range(width):
                for i in range(first, rows):
                    out[k, i] = x[i, k]
