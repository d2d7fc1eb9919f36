"""Quantize float32 rows to integers of 8 or 16 bits, in two passes: the largest magnitude of each row, then
the integers.

There are no fused multiply-adds, which would round ties differently from the reference.
"""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compiler.compile import inlined, kernel
from tenon_cpu.jit.loops.vectors import bits, number

_NOT_SIGN, _LOW_BITS = np.int32(0x7FFFFFFF), np.int32(0xFF)
_ROUND = np.float32(12582912.0)  # 1.5 * 2^23: adding it rounds to an integer, in the low bits
_NONE = np.int32(0)
_LOW_WORD = np.int32(0xFFFF)
_LEAST, _MOST = np.float32(0), np.float32(255)
_LARGEST, _SMALLEST, _INFINITE = np.float32(127), np.float32(1e-36), np.float32(np.inf)


@kernel("void(float32[:,::1], float32[::1], int64, int64)")
def magnitudes(x, out, start, stop):
    """The largest absolute value of each row; NaN is larger than infinity."""
    for r in range(start, stop):
        row = x[r]
        best = _NONE
        for i in range(row.size):
            best = max(best, bits(row[i]) & _NOT_SIGN)
        out[r] = number(best)


@kernel("void(float32[:,::1], float32, uint8[:,::1], int64, int64)", fastmath=())
def scaled_bytes(x, factor, out, start, stop):
    """``rint(x * factor)`` as the bytes of int8, for products within its range."""
    for r in range(start, stop):
        row, out_row = x[r], out[r]
        for i in range(row.size):
            out_row[i] = np.uint8(bits(row[i] * factor + _ROUND) & _LOW_BITS)


@kernel("void(float32[:,::1], float32, int64[::1], uint16[::1], int64, int64)", fastmath=())
def scaled_words(x, factor, places, out, start, stop):
    """``rint(x * factor)`` as the bits of int16; ``places`` has each row's index in ``out``."""
    for r in range(start, stop):
        row = x[r]
        out_row = out[places[r] : places[r] + row.size]
        for i in range(row.size):
            out_row[i] = np.uint16(bits(row[i] * factor + _ROUND) & _LOW_WORD)


@kernel("void(float32[:,::1], float32, int64, int64[::1], uint16[::1], int64, int64)", fastmath=())
def quantized_words(x, scale, zero, places, out, start, stop):
    """``rint(x / scale + zero)``, clamped to 0 to 255, minus ``zero``, as the bits of int16."""
    shift, less = np.float32(zero), np.int32(zero)
    for r in range(start, stop):
        row = x[r]
        out_row = out[places[r] : places[r] + row.size]
        for i in range(row.size):
            y = row[i] / scale + shift
            y = y if y > _LEAST else _LEAST
            y = y if y < _MOST else _MOST
            out_row[i] = np.uint16(((bits(y + _ROUND) & _LOW_WORD) - less) & _LOW_WORD)


@kernel("void(uint8[:,::1], int64, int64[::1], uint16[::1], int64, int64)")
def words(x, zero, places, out, start, stop):
    """``x - zero`` as the bits of int16; ``places`` has each row's index in ``out``."""
    less = np.int32(zero)
    for r in range(start, stop):
        row = x[r]
        out_row = out[places[r] : places[r] + row.size]
        for i in range(row.size):
            out_row[i] = np.uint16((np.int32(row[i]) - less) & _LOW_WORD)


@inlined
def _factor(x, scale):
    """The factor that scales ``x`` to int8, 0 if all results are 0; ``scale[0]`` is set to the quantization
    scale."""
    best = _NONE
    for i in range(x.size):
        best = max(best, bits(x[i]) & _NOT_SIGN)
    size = number(best)
    if not (size >= _SMALLEST and size < _INFINITE):
        scale[0] = _LEAST if size < _SMALLEST else size - size
        return _LEAST
    scale[0] = size / _LARGEST
    return _LARGEST / size


@inlined(fastmath=())
def to_bytes(x, scale, out):
    """``x``, scaled by its largest magnitude, as the bytes of int8; ``scale[0]`` is set to the quantization
    scale."""
    factor = _factor(x, scale)
    if factor == _LEAST:
        out[:] = np.uint8(0)
    else:
        for i in range(x.size):
            out[i] = np.uint8(bits(x[i] * factor + _ROUND) & _LOW_BITS)


@inlined(fastmath=())
def to_words(x, scale, out):
    """``x``, scaled by its largest magnitude to int8, as the bits of int16; ``scale[0]`` is set likewise."""
    factor = _factor(x, scale)
    if factor == _LEAST:
        out[:] = np.uint16(0)
    else:
        for i in range(x.size):
            out[i] = np.uint16(bits(x[i] * factor + _ROUND) & _LOW_WORD)


@kernel("void(float32[::1], float32[::1], uint8[::1])")
def all_to_bytes(x, scale, out):
    """``to_bytes`` of one array."""
    to_bytes(x, scale, out)


@kernel("void(float32[::1], float32[::1], uint16[::1])", fastmath=())
def all_to_words(x, scale, out):
    """``to_words`` of one array."""
    to_words(x, scale, out)
