"""Loops along an axis of float32 arrays ``[outer, size, inner]``: cumulative ops, reductions, indexing.

Threads share the outer axis. If ``inner`` is 1, a line is a row.
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
    """The product of all elements."""
    p = _ONE
    for i in range(row.size):
        p = times(p, row[i])
    return p


@kernel("void(float32[:,:,::1], float32[:,:,::1], int64, int64)")
def cumprod(x, out, start, stop):
    """Cumulative products, in float64 like PyTorch's: they may leave float32's range and come back."""
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
                row, out_row = x[r, i], out[r, i]
                for j in range(inner):
                    products[j] *= row[j]
                    out_row[j] = products[j]


@kernel("void(float32[:,:,::1], float32[:,:,::1], int64, int64)")
def cumsum(x, out, start, stop):
    """Cumulative sums; of rows in float64."""
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
                before, row, out_row = out[r, i - 1], x[r, i], out[r, i]
                for j in range(inner):
                    out_row[j] = before[j] + row[j]


@kernel("void(float32[:,::1], int64, float32[::1], int64, int64)")
def extreme(x, largest, out, start, stop):
    """The maximum of each row, or the minimum; NaN, which sorts beyond infinity, if there is one.

    The bits of floats above 0 sort like integers, those of floats below 0 in reverse, and as unsigned
    integers after the others.
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
    """The row's product divided by each element; if that product is 0 or not finite, products from both
    sides.

    A row whose product is 0 has neither infinity nor NaN, so a product from one side that is 0 stays 0.
    """
    for r in range(start, stop):
        row, out_row = x[r], out[r]
        total, last = product(row), row.size
        if total != _ZERO and abs(total) < _INFINITY:
            for i in range(last):
                out_row[i] = total / row[i]
        else:
            p, i = _ONE, 0
            while i < last and (p != _ZERO or total != _ZERO):
                out_row[i] = p
                p *= row[i]
                i += 1
            for j in range(i, last):
                out_row[j] = _ZERO
            p, i = _ONE, last - 1
            while i >= 0 and (p != _ZERO or total != _ZERO):
                out_row[i] *= p
                p *= row[i]
                i -= 1
            for j in range(i + 1):
                out_row[j] = _ZERO


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
def take(x, indices, out, start, stop):
    """``out[r, i] = x[r, indices[i]]``."""
    inner = x.shape[2]
    for r in range(start, stop):
        for i in range(indices.size):
            if inner == 1:
                out[r, i, 0] = x[r, indices[i], 0]
            else:
                row, out_row = x[r, indices[i]], out[r, i]
                for j in range(inner):
                    out_row[j] = row[j]


@kernel("void(float32[:,:,::1], int64[::1], float32[:,:,::1], int64, int64)")
def add_at(y, indices, out, start, stop):
    """``out[r, indices[i]] += y[r, i]``, in the order of ``i``."""
    inner = y.shape[2]
    for r in range(start, stop):
        for i in range(indices.size):
            if inner == 1:
                out[r, indices[i], 0] += y[r, i, 0]
            else:
                row, out_row = y[r, i], out[r, indices[i]]
                for j in range(inner):
                    out_row[j] += row[j]


@kernel("void(float32[:,:,::1], int64[:,:,::1], float32[:,:,::1], uint8[::1], int64, int64)")
def pick(x, indices, out, outside, start, stop):
    """``out[r, i, j] = x[r, indices[r, i, j], j]``; ``outside[0]`` becomes 1 if an index is out of range."""
    size, inner = x.shape[1], x.shape[2]
    for r in range(start, stop):
        for i in range(indices.shape[1]):
            at, out_row = indices[r, i], out[r, i]
            for j in range(inner):
                k = at[j]
                if 0 <= k < size:
                    out_row[j] = x[r, k, j]
                else:
                    outside[0] = 1


@kernel("void(float32[:,:,::1], int64[:,:,::1], float32[:,:,::1], uint8[::1], int64, int64, int64)")
def put(y, indices, out, outside, how, start, stop):
    """``out[r, indices[r, i, j], j] = y[r, i, j]``, or reduced with it if ``how`` is not 0."""
    size, inner = out.shape[1], out.shape[2]
    for r in range(start, stop):
        for i in range(indices.shape[1]):
            at, y_row = indices[r, i], y[r, i]
            for j in range(inner):
                k = at[j]
                if not 0 <= k < size:
                    outside[0] = 1
                elif how:
                    out[r, k, j] = combined(out[r, k, j], y_row[j], how)
                else:
                    out[r, k, j] = y_row[j]


@kernel("void(float32[:,:,::1], int64[::1], float32[:,:,::1], uint8[::1], int64, int64, int64)")
def put_rows(y, indices, out, outside, how, start, stop):
    """``put`` of whole rows: ``out[r, indices[i]]`` from ``y[r, i]``."""
    for r in range(start, stop):
        for i in range(indices.size):
            k, y_row = indices[i], y[r, i]
            if not 0 <= k < out.shape[1]:
                outside[0] = 1
            else:
                out_row = out[r, k]
                for j in range(y_row.size):
                    out_row[j] = combined(out_row[j], y_row[j], how) if how else y_row[j]


@kernel("void(float32[:,:,::1], float32[::1], float32[::1], float32[:,:,::1], int64, int64)")
def scale_and_shift(x, scale, shift, out, start, stop):
    """``x[:, c] * scale[c] + shift[c]``."""
    for r in range(start, stop):
        for c in range(x.shape[1]):
            row, out_row, a, b = x[r, c], out[r, c], scale[c], shift[c]
            for i in range(row.size):
                out_row[i] = row[i] * a + b


@kernel("void(float32[:,:,::1], int64, float32[:,:,::1], int64, int64)")
def solve_triangle(a, upper, x, start, stop):
    """Replace each ``x`` by ``X`` with ``A X = x`` for a small triangular ``A``, row by row."""
    size = a.shape[1]
    for m in range(start, stop):
        for n in range(size):
            i = size - 1 - n if upper else n
            row = x[m, i]
            for k in range(i + 1 if upper else 0, size if upper else i):
                factor, other = a[m, i, k], x[m, k]
                for j in range(row.size):
                    row[j] -= factor * other[j]
            divisor = a[m, i, i]
            for j in range(row.size):
                row[j] /= divisor


@kernel("void(float32[:,:,::1], int64, int64, float32[:,:,::1], int64, int64)")
def triangle(x, k, lower, out, start, stop):
    """The lower triangle of each matrix, up to its diagonal ``k``, or the upper one, from ``k`` on."""
    width = x.shape[2]
    for m in range(start, stop):
        for r in range(x.shape[1]):
            row, out_row = x[m, r], out[m, r]
            edge = min(max(r + k + lower, 0), width)
            source, target = (row[:edge], out_row[:edge]) if lower else (row[edge:], out_row[edge:])
            empty = out_row[edge:] if lower else out_row[:edge]
            for i in range(source.size):
                target[i] = source[i]
            for i in range(empty.size):
                empty[i] = _ZERO


@kernel("void(float32[:,::1], int64, int64[:,::1], int64, int64)")
def smallest(x, flipped, out, start, stop):
    """The indices of the smallest elements of each row (of the largest with -1 for ``flipped``), sorted, as
    many as ``out`` is wide: ties keep their order, NaN sorts as the largest."""
    count = out.shape[1]
    keys = np.empty(count, np.int32)
    for r in range(start, stop):
        row, out_row = x[r], out[r]
        for k in range(count):
            keys[k] = _LARGEST
            out_row[k] = -1
        worst, filled = _LARGEST, 0
        for i in range(row.size):
            v = row[i] + _ZERO
            key = (order(v) if v == v else _LARGEST) ^ np.int32(flipped)
            if key < worst or filled < count:
                k = min(filled, count - 1)
                while k > 0 and keys[k - 1] > key:
                    keys[k] = keys[k - 1]
                    out_row[k] = out_row[k - 1]
                    k -= 1
                keys[k] = key
                out_row[k] = i
                filled = min(filled + 1, count)
                worst = keys[count - 1]
