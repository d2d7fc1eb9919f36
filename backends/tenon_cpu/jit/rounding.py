"""float32 rows as whole numbers of 8 or 16 bits: their sizes first, then the numbers, in two walks.

Nothing is contracted: a fused multiply-add would round ties differently from the reference.
"""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compile import kernel
from tenon_cpu.jit.vectors import bits, number

_NOT_SIGN, _LOW_BITS = np.int32(0x7FFFFFFF), np.int32(0xFF)
_ROUND = np.float32(12582912.0)  # 1.5 * 2^23: adding it rounds to a whole number, found in the low bits
_NONE = np.int32(0)
_LOW_WORD = np.int32(0xFFFF)
_LEAST, _MOST = np.float32(0), np.float32(255)


@kernel("void(float32[:,::1], float32[::1], int64, int64)")
def sizes(x, out, start, stop):  # type: ignore[no-untyped-def]
    """The largest absolute value of each row; NaN is larger than infinity."""
    for r in range(start, stop):
        row = x[r]
        best = _NONE
        for i in range(row.size):
            best = max(best, bits(row[i]) & _NOT_SIGN)
        out[r] = number(best)


@kernel("void(float32[:,::1], float32, uint8[:,::1], int64, int64)", fastmath=())
def whole(x, factor, out, start, stop):  # type: ignore[no-untyped-def]
    """``rint(x * factor)`` as the bytes of int8, for products within its range."""
    for r in range(start, stop):
        row, made = x[r], out[r]
        for i in range(row.size):
            made[i] = np.uint8(bits(row[i] * factor + _ROUND) & _LOW_BITS)


@kernel("void(float32[:,::1], float32, int64[::1], uint16[::1], int64, int64)", fastmath=())
def scaled_words(x, factor, places, out, start, stop):  # type: ignore[no-untyped-def]
    """``rint(x * factor)`` as the bits of int16; each row goes to its place."""
    for r in range(start, stop):
        row = x[r]
        made = out[places[r] : places[r] + row.size]
        for i in range(row.size):
            made[i] = np.uint16(bits(row[i] * factor + _ROUND) & _LOW_WORD)


@kernel("void(float32[:,::1], float32, int64, int64[::1], uint16[::1], int64, int64)", fastmath=())
def word_steps(x, step, zero, places, out, start, stop):  # type: ignore[no-untyped-def]
    """``rint(x / step + zero)``, within 0 to 255, less ``zero``, as the bits of int16."""
    shift, less = np.float32(zero), np.int32(zero)
    for r in range(start, stop):
        row = x[r]
        made = out[places[r] : places[r] + row.size]
        for i in range(row.size):
            y = row[i] / step + shift
            y = y if y > _LEAST else _LEAST
            y = y if y < _MOST else _MOST
            made[i] = np.uint16(((bits(y + _ROUND) & _LOW_WORD) - less) & _LOW_WORD)


@kernel("void(uint8[:,::1], int64, int64[::1], uint16[::1], int64, int64)")
def words(x, zero, places, out, start, stop):  # type: ignore[no-untyped-def]
    """``x - zero`` as the bits of int16; each row goes to its place."""
    less = np.int32(zero)
    for r in range(start, stop):
        row = x[r]
        made = out[places[r] : places[r] + row.size]
        for i in range(row.size):
            made[i] = np.uint16((np.int32(row[i]) - less) & _LOW_WORD)
