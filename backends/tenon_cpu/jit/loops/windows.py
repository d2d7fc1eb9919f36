"""Max pooling in one to three dimensions, and its gradient."""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compiler.compile import inlined, kernel
from tenon_cpu.jit.loops.vectors import bits, number

_TRUE = np.int32(1)
_ZERO = np.float32(0)
_NOWHERE = np.int32(-(2**31))
_LOWEST, _NAN = np.float32(-np.inf), np.float32(np.nan)


@kernel("void(float32[:,:,::1], float32[:,:,::1], int64, int64)")
def max_pool_2x2(x, out, start, stop):
    """Max pooling of windows of 2 by 2 that do not overlap; NaN propagates."""
    for p in range(start, stop):
        for i in range(out.shape[1]):
            upper, lower, out_row = x[p, 2 * i], x[p, 2 * i + 1], out[p, i]
            for j in range(out_row.size):
                a, b, c, d = upper[2 * j], upper[2 * j + 1], lower[2 * j], lower[2 * j + 1]
                m = a if a > b or a != a else b
                n = c if c > d or c != c else d
                out_row[j] = m if m > n or m != m else n


@inlined
def _at_last_nans(g, x, y, out):
    """Move the gradient of windows whose maximum is NaN to its last NaN."""
    for i in range(g.shape[0]):
        for j in range(g.shape[1]):
            if y[i, j] != y[i, j]:
                free = True
                for k in range(3, -1, -1):
                    h, w = 2 * i + k // 2, 2 * j + k % 2
                    out[h, w] = g[i, j] if free and x[h, w] != x[h, w] else _ZERO
                    free = free and x[h, w] == x[h, w]


@kernel("void(float32[:,:,::1], float32[:,:,::1], float32[:,:,::1], float32[:,:,::1], int64, int64)")
def max_pool_2x2_grad(g, x, y, out, start, stop):
    """Each window's gradient goes to its first maximum, or its last NaN."""
    for p in range(start, stop):
        for i in range(g.shape[1]):
            upper, lower, g_row, top = x[p, 2 * i], x[p, 2 * i + 1], g[p, i], y[p, i]
            above, below = out[p, 2 * i], out[p, 2 * i + 1]
            for j in range(g_row.size):
                t, v = top[j], bits(g_row[j])
                a = np.int32(not upper[2 * j] < t)
                b = np.int32(not upper[2 * j + 1] < t) & (a ^ _TRUE)
                c = np.int32(not lower[2 * j] < t) & ((a | b) ^ _TRUE)
                d = np.int32(not lower[2 * j + 1] < t) & ((a | b | c) ^ _TRUE)
                above[2 * j] = number(v & -a)
                above[2 * j + 1] = number(v & -b)
                below[2 * j] = number(v & -c)
                below[2 * j + 1] = number(v & -d)
        has_nan = np.int32(0)
        for i in range(g.shape[1]):
            top = y[p, i]
            for j in range(top.size):
                has_nan |= np.int32(top[j] != top[j])
        if has_nan:
            _at_last_nans(g[p], x[p], y[p], out[p])


@kernel("void(float32[:,::1], int64, int64, int64, int64, float32[:,::1], int64, int64)")
def max_pool_1d(x, size, step, before, dilation, out, start, stop):
    """1-d max pooling, one position of the window at a time; NaN propagates."""
    length, count = x.shape[1], out.shape[1]
    for r in range(start, stop):
        line, out_row = x[r], out[r]
        for i in range(count):
            out_row[i] = _LOWEST
        for j in range(size):
            shift = j * dilation - before
            first = 0 if shift >= 0 else (step - 1 - shift) // step
            last = min(count, (length - 1 - shift) // step + 1) if shift < length else 0
            for i in range(first, last):
                v = line[i * step + shift]
                out_row[i] = v if v > out_row[i] or v != v else out_row[i]


@inlined
def _largest(line, tops, shift, step, shifts):
    """Set ``shifts`` to ``shift`` where the line has the window's maximum there; the first NaN stays."""
    for i in range(shifts.size):
        v = line[i * step]
        shifts[i] = shift if v == tops[i] or (v != v and shifts[i] == _NOWHERE) else shifts[i]


@kernel(
    "void(float32[:,::1], float32[:,::1], float32[:,::1], int64, int64, int64, int64, float32[:,::1], int64,"
    " int64)"
)
def max_pool_1d_grad(g, x, y, size, step, before, dilation, out, start, stop):
    """Add each window's gradient to its first maximum, or last NaN, in ``out``, which starts with zeros."""
    length, count = x.shape[1], y.shape[1]
    shifts = np.empty(count, np.int32)
    for r in range(start, stop):
        line, out_row, top, g_row = x[r], out[r], y[r], g[r]
        for i in range(count):
            shifts[i] = _NOWHERE  # dilated windows may lie in padding only
        for j in range(size - 1, -1, -1):  # the first position is written last
            shift = j * dilation - before
            first = 0 if shift >= 0 else (step - 1 - shift) // step
            last = min(count, (length - 1 - shift) // step + 1) if shift < length else 0
            if first < last:
                own, tops, seen = shifts[first:last], top[first:last], line[first * step + shift :]
                if step == 1:
                    _largest(seen, tops, np.int32(shift), 1, own)
                elif step == 2:
                    _largest(seen, tops, np.int32(shift), 2, own)
                else:
                    _largest(seen, tops, np.int32(shift), step, own)
        for i in range(count):
            if shifts[i] != _NOWHERE:
                out_row[i * step + shifts[i]] += g_row[i]


@inlined
def _at_last_nan(g, x, y, layout, out):
    """Add the gradient of windows whose maximum is NaN to its last NaN."""
    deep, high, wide = x.shape
    for a in range(y.shape[0]):
        for b in range(y.shape[1]):
            for c in range(y.shape[2]):
                place = layout[0, 0] * layout[0, 1] * layout[0, 2] if y[a, b, c] != y[a, b, c] else 0
                while place > 0:
                    place -= 1
                    k, rest = place % layout[0, 2], place // layout[0, 2]
                    i = a * layout[1, 0] - layout[2, 0] + rest // layout[0, 1] * layout[3, 0]
                    j = b * layout[1, 1] - layout[2, 1] + rest % layout[0, 1] * layout[3, 1]
                    k = c * layout[1, 2] - layout[2, 2] + k * layout[3, 2]
                    inside = 0 <= i < deep and 0 <= j < high and 0 <= k < wide
                    if inside and x[i, j, k] != x[i, j, k]:
                        out[(i * high + j) * wide + k] += g[a, b, c]
                        place = 0


@kernel(
    "void(float32[:,:,:,::1], float32[:,:,:,::1], float32[:,:,:,::1], int64[:,::1], int64[::1],"
    " float32[:,::1], int64, int64)"
)
def max_pool_grad(g, x, y, layout, offsets, out, start, stop):
    """The gradient of max pooling of volumes.

    ``layout`` has the windows' sizes, strides, padding, dilation, and the padded sizes of the three axes;
    ``offsets`` the flat offsets of a window's positions in a padded volume, from the last. Padding is NaN,
    which equals nothing. The gradient of a window without a maximum is added behind the volume.
    """
    deep, high, wide = x.shape[1:]
    padded, row, step = layout[4, 0] * layout[4, 1] * layout[4, 2], layout[4, 2], layout[1, 2]
    before = (layout[2, 0] * layout[4, 1] + layout[2, 1]) * row + layout[2, 2]
    cells, sums = np.empty(padded, np.float32), np.empty(padded + 1, np.float32)
    cells[:], count = _NAN, offsets.size
    for p in range(start, stop):
        for i in range(deep):
            for j in range(high):
                line, copied = x[p, i, j], cells[before + (i * layout[4, 1] + j) * row :]
                for k in range(line.size):
                    copied[k] = line[k]
        sums[:] = _ZERO
        has_nan = np.int32(0)
        for a in range(y.shape[1]):
            for b in range(y.shape[2]):
                top, g_row = y[p, a, b], g[p, a, b]
                begin = (a * layout[1, 0] * layout[4, 1] + b * layout[1, 1]) * row
                for c in range(top.size):
                    base, t, at = np.uint64(begin + c * step), top[c], np.uint64(padded)
                    for q in range(count):
                        place = base + np.uint64(offsets[q])  # unsigned, so not tested for negative ones
                        at = place if cells[place] == t else at
                    sums[at] += g_row[c]
                for c in range(top.size):
                    has_nan |= np.int32(top[c] != top[c])
        for i in range(deep):
            for j in range(high):
                line = out[p, (i * high + j) * wide :]
                copied = sums[before + (i * layout[4, 1] + j) * row :]
                for k in range(wide):
                    line[k] = copied[k]
        if has_nan:
            _at_last_nan(g[p], x[p], y[p], layout, out[p])
