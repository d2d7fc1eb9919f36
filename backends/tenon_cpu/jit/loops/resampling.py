"""Loops over the tables of resampled axes, over sampled places, and over windows."""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compiler.compile import kernel
from tenon_cpu.jit.loops.vectors import combined

_ZERO = np.float32(0)
#: Places of a block, whose indices and weights are used for all channels.
_BLOCK = BLOCK = 512


@kernel("void(float32[:,:,::1], int64[::1], int64[::1], float32[::1], float32[:,:,::1], int64, int64)")
def rows(x, starts, places, weights, out, start, stop):
    """Each row of ``out`` is a weighted sum of rows of ``x``, two at a time."""
    for o in range(start, stop):
        for i in range(starts.size - 1):
            out_row, at, end = out[o, i], starts[i], starts[i + 1]
            if end - at == 1:
                one, a = x[o, places[at]], weights[at]
                for j in range(out_row.size):
                    out_row[j] = a * one[j]
                continue
            if at == end:
                for j in range(out_row.size):
                    out_row[j] = _ZERO
                continue
            one, other, a, b = x[o, places[at]], x[o, places[at + 1]], weights[at], weights[at + 1]
            for j in range(out_row.size):
                out_row[j] = a * one[j] + b * other[j]
            k = at + 2
            while k + 1 < end:
                one, other, a, b = x[o, places[k]], x[o, places[k + 1]], weights[k], weights[k + 1]
                for j in range(out_row.size):
                    out_row[j] += a * one[j] + b * other[j]
                k += 2
            if k < end:
                one, a = x[o, places[k]], weights[k]
                for j in range(out_row.size):
                    out_row[j] += a * one[j]


@kernel("void(float32[:,::1], int64[::1], int64[::1], float32[::1], float32[:,::1], int64, int64)")
def points(x, starts, places, weights, out, start, stop):
    """Each element of a row of ``out`` is a weighted sum of elements of that row of ``x``."""
    count = starts.size - 1
    taps, even = starts[1], True
    for i in range(count):
        even = even and starts[i + 1] - starts[i] == taps
    for o in range(start, stop):
        line, out_row = x[o], out[o]
        if even and taps == 1:
            for i in range(count):
                out_row[i] = weights[i] * line[places[i]]
        elif even and taps == 2:
            for i in range(count):
                out_row[i] = (
                    weights[2 * i] * line[places[2 * i]] + weights[2 * i + 1] * line[places[2 * i + 1]]
                )
        elif even and taps == 4:
            for i in range(count):
                k = 4 * i
                low = weights[k] * line[places[k]] + weights[k + 1] * line[places[k + 1]]
                out_row[i] = low + weights[k + 2] * line[places[k + 2]] + weights[k + 3] * line[places[k + 3]]
        else:
            for i in range(count):
                total = _ZERO
                for k in range(starts[i], starts[i + 1]):
                    total += weights[k] * line[places[k]]
                out_row[i] = total


@kernel("void(float32[:,:,::1], float32[:,:,::1], int64[:,:,::1], float32[:,:,::1], int64, int64)")
def tap_sum(x, weights, places, out, start, stop):
    """The weighted sum of each place's taps: a block of places of all channels at a time, four taps at once.

    A tap outside (-1) reads the first cell with the weight 0, unless that cell is not finite.
    """
    taps, count = places.shape[1], out.shape[2]
    blocks = (count + _BLOCK - 1) // _BLOCK
    index, factors = np.empty((taps, _BLOCK), np.int64), np.empty((taps, _BLOCK), np.float32)
    for row in range(start, stop):
        n, first = row // blocks, row % blocks * _BLOCK
        size = min(_BLOCK, count - first)
        for t in range(taps):
            at, w = places[n, t, first : first + size], weights[n, t, first : first + size]
            for p in range(size):
                index[t, p] = max(at[p], 0)
                factors[t, p] = w[p] if at[p] >= 0 else _ZERO
        for c in range(x.shape[1]):
            cells, out_row = x[n, c], out[n, c, first : first + size]
            finite = cells[0] - cells[0] == _ZERO
            for p in range(size):
                out_row[p] = _ZERO
            t = 0
            while finite and t + 3 < taps:
                i, j, k, m = index[t], index[t + 1], index[t + 2], index[t + 3]
                a, b, d, e = factors[t], factors[t + 1], factors[t + 2], factors[t + 3]
                for p in range(size):
                    low = a[p] * cells[i[p]] + b[p] * cells[j[p]]
                    out_row[p] += low + (d[p] * cells[k[p]] + e[p] * cells[m[p]])
                t += 4
            while t < taps:
                for p in range(size):
                    if finite or places[n, t, first + p] >= 0:
                        out_row[p] += factors[t, p] * cells[index[t, p]]
                t += 1


@kernel("void(float32[:,:,::1], float32[:,:,::1], int64[:,:,::1], float32[:,:,::1], int64, int64)")
def tap_spread(g, weights, places, out, start, stop):
    """Add ``g * weight`` of every tap of every place to its cell of ``out``, which starts with zeros."""
    channels = g.shape[1]
    for row in range(start, stop):
        n, c = row // channels, row % channels
        g_row, out_row = g[n, c], out[n, c]
        for t in range(places.shape[1]):
            at, w = places[n, t], weights[n, t]
            for p in range(g_row.size):
                if at[p] >= 0:
                    out_row[at[p]] += g_row[p] * w[p]


@kernel("void(float32[:,:,::1], float32[:,:,::1], int64[:,:,::1], float32[:,:,::1], int64, int64)")
def tap_dot(g, x, places, out, start, stop):
    """The sum of ``g * x`` over channels at every tap: a block of places and two channels at a time.

    A tap outside (-1) reads the first cell, and its result is replaced by 0 at the end.
    """
    taps, count, channels = places.shape[1], out.shape[2], x.shape[1]
    blocks = (count + _BLOCK - 1) // _BLOCK
    for row in range(start, stop):
        n, first = row // blocks, row % blocks * _BLOCK
        last = min(first + _BLOCK, count)
        for t in range(taps):
            at, out_row = places[n, t, first:last], out[n, t, first:last]
            for p in range(out_row.size):
                out_row[p] = _ZERO
            c = 0
            while c + 1 < channels:
                cells, others = x[n, c], x[n, c + 1]
                g_row, further = g[n, c, first:last], g[n, c + 1, first:last]
                for p in range(out_row.size):
                    place = max(at[p], 0)
                    out_row[p] += cells[place] * g_row[p] + others[place] * further[p]
                c += 2
            if c < channels:
                cells, g_row = x[n, c], g[n, c, first:last]
                for p in range(out_row.size):
                    out_row[p] += cells[max(at[p], 0)] * g_row[p]
            for p in range(out_row.size):
                out_row[p] = out_row[p] if at[p] >= 0 else _ZERO


@kernel("void(float32[:,::1], int64[:,::1], float32[:,::1], uint8[::1], int64, int64)")
def pick(x, places, out, outside, start, stop):
    """``out[r, i] = x[r, places[r, i]]``; ``outside[0]`` becomes 1 if an index is out of range."""
    for r in range(start, stop):
        line, at, out_row = x[r], places[r], out[r]
        for i in range(out_row.size):
            place = at[i]
            if 0 <= place < line.size:
                out_row[i] = line[place]
            else:
                outside[0] = 1


@kernel("void(float32[:,::1], int64[:,::1], float32[:,::1], uint8[::1], int64, int64, int64)")
def put(y, places, out, outside, how, start, stop):
    """``out[r, places[r, i]] = y[r, i]``, or reduced with it if ``how`` is not 0."""
    for r in range(start, stop):
        line, at, y_row = out[r], places[r], y[r]
        for i in range(y_row.size):
            to = at[i]
            if not 0 <= to < line.size:
                outside[0] = 1
            elif how:
                line[to] = combined(line[to], y_row[i], how)
            else:
                line[to] = y_row[i]


@kernel(
    "void(float32[:,:,:,::1], int64[:,:,::1], int64[:,:,::1], int64[:,:,::1], int64[:,:,:,::1], int64, int64)"
)
def largest(x, depth, height, width, out, start, stop):
    """The index of the first maximum of each window of volumes ``[D, H, W]``, or of its last NaN.

    The windows along an axis are ``[planes or 1, (first, stop, step), windows]``.
    """
    for p in range(start, stop):
        own, out_row = x[p], out[p]
        ds = depth[p if depth.shape[0] > 1 else 0]
        hs = height[p if height.shape[0] > 1 else 0]
        ws = width[p if width.shape[0] > 1 else 0]
        for a in range(ds.shape[1]):
            for b in range(hs.shape[1]):
                for e in range(ws.shape[1]):
                    i, j, k = ds[0, a], hs[0, b], ws[0, e]
                    best, index = own[i, j, k], (i * own.shape[1] + j) * own.shape[2] + k
                    for d in range(i, ds[1, a], ds[2, a]):
                        for h in range(j, hs[1, b], hs[2, b]):
                            line, base = own[d, h], (d * own.shape[1] + h) * own.shape[2]
                            for w in range(k, ws[1, e], ws[2, e]):
                                v = line[w]
                                if not v <= best and (v > best or v != v):
                                    best, index = v, base + w
                    out_row[a, b, e] = index
