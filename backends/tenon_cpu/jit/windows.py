"""Max pooling of planes and of lines, and its gradient."""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compile import inlined, kernel
from tenon_cpu.jit.vectors import bits, number

_TRUE = np.int32(1)
_ZERO = np.float32(0)
_NOWHERE = np.int32(-(2**31))
_LOWEST = np.float32(-np.inf)


@kernel("void(float32[:,:,::1], float32[:,:,::1], int64, int64)")
def max_pool_2x2(x, out, start, stop):  # type: ignore[no-untyped-def]
    """Windows of 2 by 2 side by side; NaN wins."""
    for p in range(start, stop):
        for i in range(out.shape[1]):
            upper, lower, made = x[p, 2 * i], x[p, 2 * i + 1], out[p, i]
            for j in range(made.size):
                a, b, c, d = upper[2 * j], upper[2 * j + 1], lower[2 * j], lower[2 * j + 1]
                m = a if a > b or a != a else b
                n = c if c > d or c != c else d
                made[j] = m if m > n or m != m else n


@inlined
def _at_last_nans(g, x, y, out):  # type: ignore[no-untyped-def]
    """The gradient of windows whose maximum is NaN goes to its last place."""
    for i in range(g.shape[0]):
        for j in range(g.shape[1]):
            if y[i, j] != y[i, j]:
                free = True
                for k in range(3, -1, -1):
                    h, w = 2 * i + k // 2, 2 * j + k % 2
                    out[h, w] = g[i, j] if free and x[h, w] != x[h, w] else _ZERO
                    free = free and x[h, w] == x[h, w]


@kernel("void(float32[:,:,::1], float32[:,:,::1], float32[:,:,::1], float32[:,:,::1], int64, int64)")
def max_pool_2x2_grad(g, x, y, out, start, stop):  # type: ignore[no-untyped-def]
    """The first of a window that is its maximum takes its gradient, or the last NaN."""
    for p in range(start, stop):
        for i in range(g.shape[1]):
            upper, lower, given, top = x[p, 2 * i], x[p, 2 * i + 1], g[p, i], y[p, i]
            above, below = out[p, 2 * i], out[p, 2 * i + 1]
            for j in range(given.size):
                t, v = top[j], bits(given[j])
                a = np.int32(not upper[2 * j] < t)
                b = np.int32(not upper[2 * j + 1] < t) & (a ^ _TRUE)
                c = np.int32(not lower[2 * j] < t) & ((a | b) ^ _TRUE)
                d = np.int32(not lower[2 * j + 1] < t) & ((a | b | c) ^ _TRUE)
                above[2 * j] = number(v & -a)
                above[2 * j + 1] = number(v & -b)
                below[2 * j] = number(v & -c)
                below[2 * j + 1] = number(v & -d)
        strange = np.int32(0)
        for i in range(g.shape[1]):
            top = y[p, i]
            for j in range(top.size):
                strange |= np.int32(top[j] != top[j])
        if strange:
            _at_last_nans(g[p], x[p], y[p], out[p])


@kernel("void(float32[:,::1], int64, int64, int64, int64, float32[:,::1], int64, int64)")
def max_pool_lines(x, size, step, before, dilation, out, start, stop):  # type: ignore[no-untyped-def]
    """Windows along lines, one place of the window after the other; NaN wins."""
    length, count = x.shape[1], out.shape[1]
    for r in range(start, stop):
        line, made = x[r], out[r]
        for i in range(count):
            made[i] = _LOWEST
        for j in range(size):
            shift = j * dilation - before
            first = 0 if shift >= 0 else (step - 1 - shift) // step
            last = min(count, (length - 1 - shift) // step + 1) if shift < length else 0
            for i in range(first, last):
                v = line[i * step + shift]
                made[i] = v if v > made[i] or v != v else made[i]


@inlined
def _largest(seen, tops, shift, step, places):  # type: ignore[no-untyped-def]
    """``shift`` is the place of a maximum where the line has it so far from the window's begin; the first NaN
    that is seen stays."""
    for i in range(places.size):
        v = seen[i * step]
        places[i] = shift if v == tops[i] or (v != v and places[i] == _NOWHERE) else places[i]


@kernel(
    "void(float32[:,::1], float32[:,::1], float32[:,::1], int64, int64, int64, int64, float32[:,::1], int64,"
    " int64)"
)
def max_pool_lines_grad(g, x, y, size, step, before, dilation, out, start, stop):  # type: ignore[no-untyped-def]
    """Into zeros: the first of a window that is its maximum takes its gradient, or the last NaN."""
    length, count = x.shape[1], y.shape[1]
    found = np.empty(count, np.int32)
    for r in range(start, stop):
        line, made, top, given = x[r], out[r], y[r], g[r]
        for i in range(count):
            found[i] = _NOWHERE  # dilated windows may see nothing but padding
        for j in range(size - 1, -1, -1):  # the first place is the last to write
            shift = j * dilation - before
            first = 0 if shift >= 0 else (step - 1 - shift) // step
            last = min(count, (length - 1 - shift) // step + 1) if shift < length else 0
            if first < last:
                places, tops, seen = found[first:last], top[first:last], line[first * step + shift :]
                if step == 1:
                    _largest(seen, tops, np.int32(shift), 1, places)
                elif step == 2:
                    _largest(seen, tops, np.int32(shift), 2, places)
                else:
                    _largest(seen, tops, np.int32(shift), step, places)
        for i in range(count):
            if found[i] != _NOWHERE:
                made[i * step + found[i]] += given[i]
