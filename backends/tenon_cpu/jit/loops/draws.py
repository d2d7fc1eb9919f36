"""Loops of PyTorch's random stream on the CPU: words, Bernoulli draws and normals, bit for bit as with NumPy.

``unit32`` follows ``tenon.random.box_muller`` step by step; all 2**24 radii and angles were compared with it.
"""

from __future__ import annotations

import math

import numpy as np

from tenon_cpu.jit.compiler.compile import fused, inlined, kernel

_BLOCK = 624
_UPPER, _LOWER, _TWIST = np.uint32(0x80000000), np.uint32(0x7FFFFFFF), np.uint32(0x9908B0DF)
_MASK_B, _MASK_C = np.uint32(0x9D2C5680), np.uint32(0xEFC60000)
_ONE, _ZERO = np.uint32(1), np.uint32(0)
_LOW21, _LOW24 = np.uint32(0x1FFFFF), np.uint32(0xFFFFFF)
_WORD = np.float64(4294967296.0)
#: Radii of a run, whose temporary arrays fit into the first-level cache.
_RUN = 1024

_L0, _L1, _L2 = np.float32(7.0376836292e-2), np.float32(-1.1514610310e-1), np.float32(1.1676998740e-1)
_L3, _L4, _L5 = np.float32(-1.2420140846e-1), np.float32(1.4249322787e-1), np.float32(-1.6668057665e-1)
_L6, _L7, _L8 = np.float32(2.0000714765e-1), np.float32(-2.4999993993e-1), np.float32(3.3333331174e-1)
_LN2_LOW, _LN2_HIGH = np.float32(-2.12194440e-4), np.float32(0.693359375)
_PI4_HIGH, _PI4_MIDDLE = np.float32(-0.78515625), np.float32(-2.4187564849853515625e-4)
_PI4_LOW = np.float32(-3.77489497744594108e-8)
_C0, _C1, _C2 = (
    np.float32(2.443315711809948e-5),
    np.float32(-1.388731625493765e-3),
    np.float32(4.166664568298827e-2),
)
_S0, _S1, _S2 = np.float32(-1.9515295891e-4), np.float32(8.3321608736e-3), np.float32(-1.6666654611e-1)
_UNIT, _FOUR_OVER_PI = np.float32(2.0**-24), np.float32(1.27323954473516)
_ANGLE = np.float32(2 * np.pi) * _UNIT
_F0, _F1, _HALF, _MINUS_HALF, _MINUS_TWO = (
    np.float32(0),
    np.float32(1),
    np.float32(0.5),
    np.float32(-0.5),
    np.float32(-2),
)
_WHOLE, _SQRT_HALF = np.int32(1 << 24), np.int32(0x3F3504F3)
_I1, _I2, _SHIFT = np.int32(1), np.int32(2), np.int32(23)
_SIGN, _TO_SIGN = np.int32(-(2**31)), np.int32(29)


@inlined(fastmath=())
def _next(a, b):
    y = np.uint32((a & _UPPER) | (b & _LOWER))
    return np.uint32((y >> _ONE) ^ (_TWIST if y & _ONE else _ZERO))


@inlined(fastmath=())
def _mix(first, second, third, out):
    for i in range(out.size):
        out[i] = np.uint32(third[i] ^ _next(first[i], second[i]))


@inlined(fastmath=())
def _temper(y):
    y = np.uint32(y ^ (y >> np.uint32(11)))
    y = np.uint32(y ^ (np.uint32(y << np.uint32(7)) & _MASK_B))
    y = np.uint32(y ^ (np.uint32(y << np.uint32(15)) & _MASK_C))
    return np.uint32(y ^ (y >> np.uint32(18)))


@kernel("void(uint32[::1], uint32[::1])", fastmath=())
def words(state, out):
    """The next words of MT19937; ``state`` has the block and then the next word's position in it."""
    at, done = np.int64(state[_BLOCK]), 0
    old = np.empty(_BLOCK, np.uint32)
    new = state[:_BLOCK]
    while done < out.size:
        if at == _BLOCK:
            for i in range(_BLOCK):
                old[i] = new[i]
            # A word depends on the one 227 before it, so in each of three runs reads and writes are disjoint.
            _mix(old[:227], old[1:228], old[397:], new[:227])
            _mix(old[227:454], old[228:455], new[:227], new[227:454])
            _mix(old[454:623], old[455:], new[227:396], new[454:623])
            new[623] = np.uint32(new[396] ^ _next(old[623], new[0]))
            at = np.int64(0)
        count = min(_BLOCK - at, out.size - done)
        part, out_part = new[at : at + count], out[done : done + count]
        for i in range(count):
            out_part[i] = _temper(part[i])
        at += count
        done += count
    state[_BLOCK] = np.uint32(at)


@kernel("void(uint32[::1], float64, float32[::1])", fastmath=())
def below(source, threshold, out):
    """1 where the low 53 bits of two words, first << 32 | second, are below the threshold, else 0."""
    for i in range(out.size):
        number = np.float64(np.uint32(source[2 * i] & _LOW21)) * _WORD + np.float64(source[2 * i + 1])
        out[i] = _F1 if number < threshold else _F0


@inlined(fastmath=())
def _radius(word):
    x = np.float32(np.int32(_WHOLE - np.int32(word & _LOW24))) * _UNIT
    i = np.float32(x).view(np.int32)
    k = np.int32((i - _SQRT_HALF) >> _SHIFT)
    e = np.float32(k)
    x = np.int32(i - (k << _SHIFT)).view(np.float32) - _F1
    z = x * x
    y = fused(x, _L0, _L1)
    y = fused(y, x, _L2)
    y = fused(y, x, _L3)
    y = fused(y, x, _L4)
    y = fused(y, x, _L5)
    y = fused(y, x, _L6)
    y = fused(y, x, _L7)
    y = fused(y, x, _L8)
    y = y * x
    y = fused(y, z, e * _LN2_LOW)
    y = y - z * _HALF
    x = x + y
    x = x + e * _LN2_HIGH
    return np.sqrt(x * _MINUS_TWO)


@inlined(fastmath=())
def _normals(radii, angles, cosines, sines):
    for i in range(radii.size):
        radius = _radius(radii[i])
        angle = np.float32(np.int32(angles[i] & _LOW24)) * _ANGLE
        octant = np.int32((np.int32(angle * _FOUR_OVER_PI) + _I1) & np.int32(-2))
        j = np.float32(octant)
        angle = angle + j * _PI4_HIGH
        angle = angle + j * _PI4_MIDDLE
        angle = fused(j, _PI4_LOW, angle)
        z = angle * angle
        y = fused(fused(z, _C0, _C1), z, _C2) * z
        cosine = fused(y, z, z * _MINUS_HALF) + _F1
        y = fused(fused(z, _S0, _S1), z, _S2) * z
        sine = fused(y, angle, angle)
        swapped = (octant & _I2) != np.int32(0)
        a, b = (sine if swapped else cosine), (cosine if swapped else sine)
        flip_b = np.int32((octant << _TO_SIGN) & _SIGN)
        flip_a = np.int32(((octant + _I2) << _TO_SIGN) & _SIGN)
        a = np.int32(np.float32(a).view(np.int32) ^ flip_a).view(np.float32)
        b = np.int32(np.float32(b).view(np.int32) ^ flip_b).view(np.float32)
        cosines[i] = a * radius + _F0
        sines[i] = b * radius + _F0


@kernel("void(uint32[::1], float32[::1])", fastmath=())
def unit32(source, out):
    """Normals: each block of 16 words is eight radii and eight angles; a run of blocks at a time."""
    radii, angles = np.empty(_RUN, np.uint32), np.empty(_RUN, np.uint32)
    cosines, sines = np.empty(_RUN, np.float32), np.empty(_RUN, np.float32)
    for first in range(0, source.size, 2 * _RUN):
        blocks = min(2 * _RUN, source.size - first) // 16
        for k in range(blocks):
            for i in range(8):
                radii[8 * k + i] = source[first + 16 * k + i]
                angles[8 * k + i] = source[first + 16 * k + 8 + i]
        count = 8 * blocks
        _normals(radii[:count], angles[:count], cosines[:count], sines[:count])
        for k in range(blocks):
            for i in range(8):
                out[first + 16 * k + i] = cosines[8 * k + i]
                out[first + 16 * k + 8 + i] = sines[8 * k + i]


@kernel("void(float64[::1])", fastmath=())
def log1p(values):
    """Replace each value by the C library's log1p."""
    for i in range(values.size):
        values[i] = math.log1p(values[i])


@kernel("void(int64[::1], int64[::1])", fastmath=())
def swaps(values, jumps):
    """Exchange ``values[i]`` and ``values[jumps[i]]`` in order: the shuffle of Fisher and Yates."""
    for i in range(jumps.size):
        j = jumps[i]
        previous = values[i]
        values[i] = values[j]
        values[j] = previous
