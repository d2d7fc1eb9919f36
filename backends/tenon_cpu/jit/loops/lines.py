"""Walks along one axis of float32 arrays ``[outer, size, inner]``: running sums, extremes, products, places.

Threads share the outer axis. Where ``inner`` is 1, a line is a row.
"""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compiler.compile import inlined, kernel
from tenon_cpu.jit.loops.vectors import bits, combined, number, order, plus

_ZERO, _ONE = np.float32(0), np.float32(1)
_LARGEST = np.int32(2**31 - 1)
#: Bits of the infinities.
_PLUS, _MINUS = np.int32(0x7F800000), np.uint32(0xFF800000)
_NAN, _INFINITY = np.float32(np.nan), np.float32(np.inf)


@inlined(fastmath={"reassoc", "contract", "nsz"})
def times(a, b):
    """``a * b``, in any order with other products."""
    return a * b


@inlined
def product(row):
    """Of all elements."""
    p = _ONE
    for i in range(row.size):
        p = times(p, row[i])
    return p


@kernel("void(float32[:,:,::1], float32[:,:,::1], int64, int64)")
def cumprod(x, out, start, stop):
    """Running products, in float64 as PyTorch's: they may leave float32's range and come back."""
    size, inner = x.shape[1], x.shape[2]
    products = np.empty(inner, np.float64)
    for r in range(start, stop):
        if inner == 1:
            s = np.float64(1)
            for i in range(size):
                s *= x[r, i, 0]
                out[r, i, 0] = s
        else:
            for j in range(inner):
                products[j] = np.float64(1)
            for i in range(size):
                row, made = x[r, i], out[r, i]
                for j in range(inner):
                    products[j] *= row[j]
                    made[j] = products[j]


@kernel("void(float32[:,:,::1], float32[:,:,::1], int64, int64)")
def cumsum(x, out, start, stop):
    """Running sums; of rows in float64."""
    size, inner = x.shape[1], x.shape[2]
    for r in range(start, stop):
        if inner == 1:
            s = np.float64(0)
            for i in range(size):
                s += x[r, i, 0]
                out[r, i, 0] = s
        else:
            for j in range(inner):
                out[r, 0, j] = x[r, 0, j]
            for i in range(1, size):
                before, row, made = out[r, i - 1], x[r, i], out[r, i]
                for j in range(inner):
                    made[j] = before[j] + row[j]


@kernel("void(float32[:,::1], int64, float32[::1], int64, int64)")
def extreme(x, largest, out, start, stop):
    """The largest of each row, or the smallest; NaN, which sorts beyond an infinity, wins.

    Bits of floats above 0 sort as integers do, those of floats below 0 the other way and, without a sign,
    behind them.
    """
    for r in range(start, stop):
        row = x[r]
        above, near, far = bits(row[0]), np.uint32(bits(row[0])), np.uint32(bits(row[0]))
        for i in range(row.size):
            v = bits(row[i])
            above = max(above, v)
            near = min(near, np.uint32(v))
            far = max(far, np.uint32(v))
        if above > _PLUS or far > _MINUS:
            out[r] = _NAN
        elif largest:
            out[r] = number(above if above >= 0 else np.int32(near))
        else:
            out[r] = number(np.int32(far if far > _PLUS else near))


@kernel("void(float32[:,::1], float32[::1], int64, int64)")
def prod(x, out, start, stop):
    """The product of each row."""
    for r in range(start, stop):
        out[r] = product(x[r])


@kernel("void(float32[:,::1], float32[:,::1], int64, int64)")
def prod_of_others(x, out, start, stop):
    """The row's product by each element; products from both sides where that is no number to divide.

    A product of 0 has no infinity and no NaN in it: what is 0 from one side stays so.
    """
    for r in range(start, stop):
        row, made = x[r], out[r]
        whole, last = product(row), row.size
        if whole != _ZERO and abs(whole) < _INFINITY:
            for i in range(last):
                made[i] = whole / row[i]
        else:
            p, i = _ONE, 0
            while i < last and (p != _ZERO or whole != _ZERO):
                made[i] = p
                p *= row[i]
                i += 1
            for j in range(i, last):
                made[j] = _ZERO
            p, i = _ONE, last - 1
            while i >= 0 and (p != _ZERO or whole != _ZERO):
                made[i] *= p
                p *= row[i]
                i -= 1
            for j in range(i + 1):
                made[j] = _ZERO


@kernel("void(float32[:,::1], float32[::1], int64, int64)")
def squares(x, out, start, stop):
    """The sum of the squares of each row."""
    for r in range(start, stop):
        row, s = x[r], np.float64(0)
        for first in range(0, row.size, 1024):
            part, t = row[first : first + 1024], _ZERO
            for i in range(part.size):
                t = plus(t, part[i] * part[i])
            s += t
        out[r] = s


@kernel("void(float32[:,:,::1], int64[::1], float32[:,:,::1], int64, int64)")
def take(x, places, out, start, stop):
    """Lines at the same places of every outer element."""
    inner = x.shape[2]
    for r in range(start, stop):
        for i in range(places.size):
            if inner == 1:
                out[r, i, 0] = x[r, places[i], 0]
            else:
                row, made = x[r, places[i]], out[r, i]
                for j in range(inner):
                    made[j] = row[j]


@kernel("void(float32[:,:,::1], int64[::1], float32[:,:,::1], int64, int64)")
def add_at(y, places, out, start, stop):
    """Lines added at the same places of every outer element, in their order."""
    inner = y.shape[2]
    for r in range(start, stop):
        for i in range(places.size):
            if inner == 1:
                out[r, places[i], 0] += y[r, i, 0]
            else:
                row, made = y[r, i], out[r, places[i]]
                for j in range(inner):
                    made[j] += row[j]


@kernel("void(float32[:,:,::1], int64[:,:,::1], float32[:,:,::1], uint8[::1], int64, int64)")
def pick(x, places, out, outside, start, stop):
    """``out[r, i, j] = x[r, places[r, i, j], j]``; ``outside`` says that a place is none."""
    size, inner = x.shape[1], x.shape[2]
    for r in range(start, stop):
        for i in range(places.shape[1]):
            at, made = places[r, i], out[r, i]
            for j in range(inner):
                k = at[j]
                if 0 <= k < size:
                    made[j] = x[r, k, j]
                else:
                    outside[0] = 1


@kernel("void(float32[:,:,::1], int64[:,:,::1], float32[:,:,::1], uint8[::1], int64, int64, int64)")
def place(y, places, out, outside, how, start, stop):
    """``out[r, places[r, i, j], j] = y[r, i, j]``, or combined with it: see ``combined``."""
    size, inner = out.shape[1], out.shape[2]
    for r in range(start, stop):
        for i in range(places.shape[1]):
            at, given = places[r, i], y[r, i]
            for j in range(inner):
                k = at[j]
                if not 0 <= k < size:
                    outside[0] = 1
                elif how:
                    out[r, k, j] = combined(out[r, k, j], given[j], how)
                else:
                    out[r, k, j] = given[j]


@kernel("void(float32[:,:,::1], int64[::1], float32[:,:,::1], uint8[::1], int64, int64, int64)")
def place_rows(y, places, out, outside, how, start, stop):
    """The same of whole rows: ``out[r, places[i]]`` and ``y[r, i]``."""
    for r in range(start, stop):
        for i in range(places.size):
            k, given = places[i], y[r, i]
            if not 0 <= k < out.shape[1]:
                outside[0] = 1
            else:
                made = out[r, k]
                for j in range(given.size):
                    made[j] = combined(made[j], given[j], how) if how else given[j]


@kernel("void(float32[:,:,::1], float32[::1], float32[::1], float32[:,:,::1], int64, int64)")
def scale_and_shift(x, scale, shift, out, start, stop):
    """``x[:, c] * scale[c] + shift[c]``."""
    for r in range(start, stop):
        for c in range(x.shape[1]):
            row, made, a, b = x[r, c], out[r, c], scale[c], shift[c]
            for i in range(row.size):
                made[i] = row[i] * a + b


@kernel("void(float32[:,:,::1], int64, float32[:,:,::1], int64, int64)")
def solve_triangle(a, upper, x, start, stop):
    """Each ``x`` becomes ``X`` of ``A X = x`` for a small triangle, row after row."""
    size = a.shape[1]
    for m in range(start, stop):
        for n in range(size):
            i = size - 1 - n if upper else n
            row = x[m, i]
            for k in range(i + 1 if upper else 0, size if upper else i):
                factor, other = a[m, i, k], x[m, k]
                for j in range(row.size):
                    row[j] -= factor * other[j]
            whole = a[m, i, i]
            for j in range(row.size):
                row[j] /= whole


@kernel("void(float32[:,:,::1], int64, int64, float32[:,:,::1], int64, int64)")
def triangle(x, k, lower, out, start, stop):
    """Each matrix up to its diagonal ``k`` (from it on if not ``lower``), zeros beyond."""
    width = x.shape[2]
    for m in range(start, stop):
        for r in range(x.shape[1]):
            row, made = x[m, r], out[m, r]
            edge = min(max(r + k + lower, 0), width)
            kept, filled = (row[:edge], made[:edge]) if lower else (row[edge:], made[edge:])
            empty = made[edge:] if lower else made[:edge]
            for i in range(kept.size):
                filled[i] = kept[i]
            for i in range(empty.size):
                empty[i] = _ZERO


@kernel("void(float32[:,::1], int64, int64[:,::1], int64, int64)")
def first(x, flipped, out, start, stop):
    """Where the smallest elements of each row are (the largest with -1 for ``flipped``), in order, as many as
    ``out`` is wide: ties keep order, NaN counts as largest."""
    count = out.shape[1]
    held = np.empty(count, np.int32)
    for r in range(start, stop):
        row, made = x[r], out[r]
        for k in range(count):
            held[k] = _LARGEST
            made[k] = -1
        worst, filled = _LARGEST, 0
        for i in range(row.size):
            v = row[i] + _ZERO
            key = (order(v) if v == v else _LARGEST) ^ np.int32(flipped)
            if key < worst or filled < count:
                k = min(filled, count - 1)
                while k > 0 and held[k - 1] > key:
                    held[k] = held[k - 1]
                    made[k] = made[k - 1]
                    k -= 1
                held[k] = key
                made[k] = i
                filled = min(filled + 1, count)
                worst = held[count - 1]
