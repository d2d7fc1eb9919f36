"""Normal numbers from words, in the three forms of PyTorch's CPU kernels.

- ``unit32``: blocks of 16 float32. Words 0-7 of a block give radii, words 8-15 angles; results are the eight
  cosine and the eight sine products. PyTorch computes logarithm, sine and cosine with the single-precision
  polynomials of Cephes, vectorised for AVX2 and compiled with fused multiply-add.
- ``unit64``: the same blocks in float64, on 53-bit uniforms, with the C library's functions.
- ``serial64``: one after another, two 53-bit uniforms for two numbers, of which the second may stay pending.

``unit32`` reproduces every bit with float32 and float64 passes of NumPy: a fused multiply-add is a product
that is exact in float64, a sum, and one rounding to float32. Where all results are in one binade that
rounding is an addition and a subtraction of a constant that shifts the excess bits out. All 2**24 radii
and all 2**24 angles were compared with the compiled kernel; tests compare the stream with PyTorch.

Next: ``continuous.py`` scales these and writes them into arrays.
"""

from __future__ import annotations

import math
import threading

import numpy as np

from tenon.random.loops import loops_for
from tenon.random.mt19937 import MersenneTwister

TWO_PI = 2.0 * math.pi
_SCALE53 = 2.0**-53
_WORD = 4294967296.0
_LOW21 = 0x1FFFFF
_LOW24 = 0xFFFFFF
_PART = np.dtype("V32")  # eight float32: half a block


def _f32(*values: float) -> list[np.float32]:
    return [np.float32(v) for v in values]


def _binade(exponent: int) -> float:
    """The float64 c such that (y + c) - c rounds y in [2**e, 2**(e + 1)) to float32."""
    return 1.5 * 2.0 ** (exponent + 29)


_LOG = [
    float(c)
    for c in _f32(
        7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
        -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
    )
]  # fmt: skip
_LN2_LOW, _LN2_HIGH = _f32(-2.12194440e-4, 0.693359375)
_PI4_HIGH, _PI4_MIDDLE, _PI4_LOW = _f32(-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8)
_COS = [float(c) for c in _f32(2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)]
_SIN = [float(c) for c in _f32(-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)]
_UNIT, _FOUR_OVER_PI = _f32(2.0**-24, 1.27323954473516)
_ANGLE = np.float32(TWO_PI) * _UNIT  # exact: only the exponent changes
_ONE, _HALF, _MINUS_TWO = _f32(1.0, 0.5, -2.0)
_SQRT_HALF_BITS = 0x3F3504F3
_SIGN = np.int32(-(2**31))


class _Scratch(threading.local):
    """Temporary arrays of ``unit32``, reused in each thread, as new memory would cost more than the
    arithmetic."""

    def __init__(self) -> None:
        self.size = 0
        self.narrow = np.empty(0, np.float32)
        self.wide = np.empty(0, np.float64)

    def rows(self, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Seven float32 and three float64 rows of n, and 2 n uint32 words that share the last float64 row."""
        if n > self.size:
            self.size = n
            self.narrow = np.empty(7 * n, np.float32)
            self.wide = np.empty(3 * n, np.float64)
        wide = self.wide[: 3 * n].reshape(3, n)
        return self.narrow[: 7 * n].reshape(7, n), wide, wide[2].view(np.uint32)


_scratch = _Scratch()


def unit32(words: np.ndarray, out: np.ndarray) -> None:
    """Unit normals of whole blocks: uint32 ``words[16 m]`` to contiguous float32 ``out[16 m]``."""
    if (fast := loops_for(words.size)) is not None:
        fast.unit32(words, out)
        return
    m = words.size // 16
    scratch, wide, masked = _scratch.rows(8 * m)
    np.bitwise_and(words, _LOW24, out=masked)
    parts = masked.view(_PART).reshape(m, 2)
    scratch[5].view(_PART)[...] = parts[:, 0]
    scratch[6].view(_PART)[...] = parts[:, 1]

    radius = _radius(scratch, wide)
    cosine, sine = _cosines_and_sines(scratch, wide)

    cosine *= radius
    sine *= radius
    _place(scratch[3].view(np.int32), cosine.view(np.int32), sine.view(np.int32), radius.view(np.int32))
    halves = out.view(_PART).reshape(m, 2)
    halves[:, 0] = cosine.view(_PART)
    halves[:, 1] = sine.view(_PART)
    # A radius of zero is -0.0; the kernel's final multiply-add with a mean of 0 makes every zero positive.
    out += np.float32(0.0)


def _radius(scratch: np.ndarray, wide: np.ndarray) -> np.ndarray:
    """sqrt(-2 log(1 - u)) of the integers u * 2**24 in row 5; the result is row 0, row 6 is untouched."""
    x, y, z, e, t, k = scratch[:6]
    wx, wy = wide[:2]
    k = k.view(np.int32)
    np.subtract(1 << 24, k, out=k)
    np.copyto(x, k)
    x *= _UNIT

    # x = mantissa * 2**e with the mantissa in [sqrt(1/2), sqrt(2)); then x -= 1.
    bits = x.view(np.int32)
    np.subtract(bits, _SQRT_HALF_BITS, out=k)
    k >>= 23
    np.copyto(e, k)
    k <<= 23
    bits -= k
    x -= _ONE

    np.copyto(wx, x)
    np.multiply(x, x, out=z)
    np.multiply(wx, _LOG[0], out=wy)
    for c in _LOG[1:8]:
        wy += c
        np.copyto(y, wy, casting="same_kind")
        np.copyto(wy, y)
        wy *= wx
    wy += _LOG[8]
    np.copyto(y, wy, casting="same_kind")
    y *= x

    np.multiply(e, _LN2_LOW, out=t)
    np.copyto(wx, z)
    np.copyto(wy, y)
    wy *= wx
    np.copyto(wx, t)
    wy += wx
    np.copyto(y, wy, casting="same_kind")
    z *= _HALF
    y -= z
    x += y
    e *= _LN2_HIGH  # exact, as LN2_HIGH has nine bits: no fused multiply-add has to be emulated
    x += e
    x *= _MINUS_TWO
    return np.sqrt(x, out=x)


def _cosines_and_sines(scratch: np.ndarray, wide: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Polynomials (cosine, sine) of the angle of the integers in row 6; row 3 becomes the even octant."""
    sine, z, octant, j, angle = scratch[1], scratch[2], scratch[3].view(np.int32), scratch[5], scratch[6]
    cosine = scratch[4]
    wz, wy, wa = wide
    np.copyto(j, angle.view(np.int32))
    np.multiply(j, _ANGLE, out=angle)
    np.multiply(angle, _FOUR_OVER_PI, out=j)
    np.copyto(octant, j, casting="unsafe")
    octant += 1
    octant &= -2
    np.copyto(j, octant)

    # angle - j * pi / 4 in three steps; the first two products are exact.
    np.multiply(j, _PI4_HIGH, out=z)
    angle += z
    np.multiply(j, _PI4_MIDDLE, out=z)
    angle += z
    np.copyto(wy, j)
    wy *= float(_PI4_LOW)
    np.copyto(wa, angle)
    wa += wy
    np.copyto(angle, wa, casting="same_kind")
    np.multiply(angle, angle, out=z)
    np.copyto(wz, z)

    _horner(wy, wz, _COS, (_binade(-10), _binade(-5)))
    wy *= wz
    np.copyto(cosine, wy, casting="same_kind")
    np.copyto(wy, cosine)
    wy *= wz
    wa[...] = wz
    wa *= 0.5
    wy -= wa
    np.copyto(cosine, wy, casting="same_kind")
    cosine += _ONE

    _horner(wy, wz, _SIN, (_binade(-7), _binade(-3)))
    wy *= wz
    np.copyto(sine, wy, casting="same_kind")
    np.copyto(wa, angle)
    np.copyto(wy, sine)
    wy *= wa
    wy += wa
    np.copyto(sine, wy, casting="same_kind")
    return cosine, sine


def _horner(y: np.ndarray, z: np.ndarray, coefficients: list[float], binades: tuple[float, float]) -> None:
    """y = (c0 z + c1) z + c2, each step rounded to float32; step k stays in the binade of ``binades[k]``."""
    first, second, third = coefficients
    np.multiply(z, first, out=y)
    y += second + binades[0]
    y -= binades[0]
    y *= z
    y += third + binades[1]
    y -= binades[1]


def _place(octant: np.ndarray, cosine: np.ndarray, sine: np.ndarray, spare: np.ndarray) -> None:
    """Swap and negate the polynomials according to the octant; all arguments are int32 views."""
    swap = octant << 30
    swap >>= 31
    np.bitwise_xor(cosine, sine, out=spare)
    spare &= swap
    cosine ^= spare
    sine ^= spare
    np.left_shift(octant, 29, out=swap)
    swap &= _SIGN
    sine ^= swap
    octant += 2
    octant <<= 29
    octant &= _SIGN
    cosine ^= octant


def uniform53(words: np.ndarray) -> np.ndarray:
    """float64 uniforms in [0, 1) from pairs of words: the low 53 bits of (first << 32 | second)."""
    return integers53(words) * _SCALE53


def integers53(words: np.ndarray) -> np.ndarray:
    """The 53-bit integers of ``uniform53`` as float64, exactly."""
    values = (words[0::2] & _LOW21).astype(np.float64)
    values *= _WORD
    values += words[1::2]
    return values


def unit64(words: np.ndarray) -> np.ndarray:
    """Unit normals of whole blocks in float64: uint32 ``words[32 m]`` to a new array of 16 m."""
    uniforms = uniform53(words).reshape(-1, 2, 8)
    radius = np.sqrt(-2.0 * libm_log_of_complement(uniforms[:, 0]))
    out = np.empty_like(uniforms)
    cosine, sine = libm_cos_sin(TWO_PI * uniforms[:, 1])
    np.multiply(radius, cosine, out=out[:, 0])
    np.multiply(radius, sine, out=out[:, 1])
    return out.reshape(-1)


def libm_cos_sin(angle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The C library's cosine and sine; NumPy's own float64 functions may differ in the last bit.

    exp(0 + i x) calls them once for both.
    """
    z = np.zeros(angle.shape, np.complex128)
    z.imag = angle
    np.exp(z, out=z)
    return z.real, z.imag


def libm_log_of_complement(u: np.ndarray) -> np.ndarray:
    """log(1 - u) with the C library's log, for u in [0, 1] where 1 - u is exact.

    The complex log1p is log(hypot(re + 1, im)): with im = 0 the plain function in a C loop.
    """
    z = np.zeros(u.shape, np.complex128)
    np.negative(u, out=z.real)
    with np.errstate(divide="ignore"):
        return np.log1p(z).real


def libm_log1p(x: np.ndarray) -> np.ndarray:
    """The C library's log1p, element by element, for a flat float64 array with x > -1."""
    loops = loops_for(16 * x.size)  # a logarithm saves as much time as 16 words
    if loops is not None:
        values = np.array(x)
        loops.log1p(values)
        return values
    return np.fromiter(map(math.log1p, x.tolist()), np.float64, x.size)


def serial64(stream: MersenneTwister, n: int) -> np.ndarray:
    """The next ``n`` unit normals of the serial form as float64, beginning with the pending one."""
    if n <= 32:
        return np.array(serial_list(stream, n), np.float64)
    pending = stream.next_normal
    missing = n if pending is None else n - 1
    pairs = (missing + 1) // 2
    uniforms = uniform53(stream.take(4 * pairs)).reshape(pairs, 2)
    radius = np.sqrt(-2.0 * libm_log1p(-uniforms[:, 1]))
    out = np.empty((pairs, 2))
    cosine, sine = libm_cos_sin(TWO_PI * uniforms[:, 0])
    np.multiply(radius, cosine, out=out[:, 0])
    np.multiply(radius, sine, out=out[:, 1])
    values = out.reshape(-1)
    stream.next_normal = float(values[-1]) if missing % 2 else None
    values = values[:missing]
    return values if pending is None else np.concatenate(([pending], values))


def serial_list(stream: MersenneTwister, n: int) -> list[float]:
    """``serial64`` for a few numbers in plain Python, which costs less than one NumPy pass per step."""
    pending = stream.next_normal
    values = [] if pending is None else [pending]
    pairs = (n - len(values) + 1) // 2
    words = stream.take(4 * pairs).tolist()
    sqrt, log1p, cos, sin = math.sqrt, math.log1p, math.cos, math.sin
    for i in range(0, 4 * pairs, 4):
        angle = TWO_PI * (((words[i] & _LOW21) * _WORD + words[i + 1]) * _SCALE53)
        radius = sqrt(-2.0 * log1p(((words[i + 2] & _LOW21) * _WORD + words[i + 3]) * -_SCALE53))
        values += (radius * cos(angle), radius * sin(angle))
    stream.next_normal = values.pop() if len(values) > n else None
    return values
