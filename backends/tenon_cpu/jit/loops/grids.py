"""Loops over sampling grids: split coordinates into elements and fractions, and compute flat indices."""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compiler.compile import inlined, kernel

_ZERO, _ONE, _TWO, _HALF = np.float32(0), np.float32(1), np.float32(2), np.float32(0.5)


@inlined
def _folded(u, low, span, most, padding):
    """``u`` moved inside, and the slope of that: ``padding`` 1 clamps to the border, 2 reflects there."""
    slope = _ONE
    if padding == 2:
        if span == _ZERO:
            return _ZERO, _ZERO
        z = u - low
        slope = -_ONE if z < _ZERO else _ONE
        z = -z if z < _ZERO else z
        flips = np.floor(z / span)
        extra = z - flips * span
        odd = flips - np.floor(flips / _TWO) * _TWO != _ZERO
        u = (span - extra if odd else extra) + low
        slope = -slope if odd else slope
    slope = _ZERO if u <= _ZERO or u >= most else slope
    u = _ZERO if u <= _ZERO else u
    return (most if u >= most else u), slope


@kernel(
    "void(float32[:,::1], int64, float32, float32, float32, float32, float32, int64, int64, float32[::1],"
    " float32[::1], float32[::1], int64, int64)"
)
def split(grid, axis, scale, shift, low, span, most, padding, nearest, base, fraction, slope, start, stop):
    """For each point the element below (or nearest), the fraction of a step to it, and padding's slope."""
    for p in range(start, stop):
        u, s = (grid[p, axis] + _ONE) * scale - shift, _ONE
        if padding:
            u, s = _folded(u, low, span, most, padding)
        b = np.rint(u) if nearest else np.floor(u)
        base[p], fraction[p], slope[p] = b, u - b, s


@kernel(
    "void(float32[::1], float32, float32, float32, float32, int64, int64[::1], int64, int64[::1], int64,"
    " int64)"
)
def places(base, offset, low, span, most, padding, before, size, out, start, stop):
    """Flat indices of the elements at ``offset`` from each base, from those of outer axes; -1 outside."""
    for p in range(start, stop):
        u = base[p] + offset
        if padding:
            u, _ = _folded(u, low, span, most, padding)
        inside = u >= _ZERO and u <= most and before[p] >= 0
        out[p] = before[p] * size + np.int64(u if inside else _ZERO) if inside else -1
