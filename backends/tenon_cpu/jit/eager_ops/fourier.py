"""Fourier transforms of many lines of float32 by generated code."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence

import numpy as np

from tenon_cpu.jit import fourier
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.eager_ops.calls import FLOAT, plain

_COMPLEX = np.dtype(np.complex64)
#: Sizes with buffers of up to 256 KB, which fit on every thread's stack.
_SMALLEST, _LARGEST = 8, 1024
#: Elements from which a second thread pays.
_SHARED = 1 << 17


def _is_power(size: int) -> bool:
    return _SMALLEST <= size <= _LARGEST and size & (size - 1) == 0


def are_powers_of_two(x: np.ndarray, axes: Sequence[int]) -> bool:
    """Whether the sizes of all axes are powers of 2 that code is generated for."""
    return bool(axes) and all(_is_power(x.shape[a]) for a in axes)


def can_transform_to_half(x: np.ndarray, axis: int) -> bool:
    """Whether code is generated for the transform of real numbers along ``axis`` to half a spectrum."""
    size = x.shape[axis]
    return _is_power(size // 2) and size % 2 == 0 and x.size // size >= fourier.LANES


def can_transform_from_half(x: np.ndarray, axis: int, size: int) -> bool:
    """Whether code is generated for the transform of half a spectrum along ``axis`` to ``size`` real
    numbers."""
    return (
        _is_power(size // 2)
        and x.shape[axis] == size // 2 + 1
        and size % 2 == 0
        and x.size // x.shape[axis] >= fourier.LANES
    )


def _run(
    kind: str, x: np.ndarray, out: np.ndarray, size: int, inverse: bool, scale: float, inner: int
) -> np.ndarray:
    """Transform the rows of ``x`` into ``out``; with ``inner``, the columns of matrices ``[size, inner]``."""
    lines = 0 if inner else x.size // x.shape[-1]
    blocks = -(-(inner or lines) // fourier.LANES)
    count = x.size // (size * inner) * blocks if inner else blocks
    transform = size if kind == fourier.COMPLEX else size // 2
    steps = [2 * inner] * 2 if inner else [a.shape[-1] * a.itemsize // 4 for a in (x, out)]
    factors, turns = fourier.factors(transform), fourier.half_spectrum_factors(transform)
    arrays = [a.ctypes.data for a in (x, out, factors, turns)]
    number = struct.unpack("<q", struct.pack("<fi", scale, 0))[0]
    table = (ctypes.c_int64 * 10)(count, *arrays, *steps, lines, inner, number)
    threads = llvm.ALL if x.size >= _SHARED else 1
    fourier.kernel(kind, size, inverse, inner > 0)(ctypes.addressof(table), threads)
    return out


def fft_complex(
    x: np.ndarray, *, axes: Sequence[int], inverse: bool = False, scale: float = 1.0
) -> np.ndarray:
    """The transform along ``axes``, one after the other; declines if one has too few lines."""
    inners = [math.prod(x.shape[a + 1 :]) if a != x.ndim - 1 else 0 for a in axes]
    if any((inner or x.size // x.shape[-1]) < fourier.LANES for inner in inners):
        return NotImplemented
    out = plain(x if x.dtype is _COMPLEX else x.astype(_COMPLEX))
    for number, (axis, inner) in enumerate(zip(axes, inners, strict=True), 1):
        factor = scale if number == len(axes) else 1.0
        out = _run(fourier.COMPLEX, out, np.empty_like(out), x.shape[axis], inverse, factor, inner)
    return out


def _last(x: np.ndarray, axis: int) -> np.ndarray:
    """``x`` in C order, with ``axis`` moved to the end."""
    return plain(x if axis == x.ndim - 1 else np.moveaxis(x, axis, -1))


def _back(x: np.ndarray, axis: int) -> np.ndarray:
    """``x`` in C order, with its last axis moved to ``axis``."""
    return x if axis == x.ndim - 1 else np.ascontiguousarray(np.moveaxis(x, -1, axis))


def fft_half(x: np.ndarray, *, axis: int, scale: float = 1.0) -> np.ndarray:
    """Half of the spectrum of real numbers."""
    size = x.shape[axis]
    lines = _last(x, axis)
    out = np.empty((*lines.shape[:-1], size // 2 + 1), _COMPLEX)
    return _back(_run(fourier.HALF, lines, out, size, False, scale, 0), axis)


def fft_real(x: np.ndarray, *, axis: int, size: int, scale: float = 1.0) -> np.ndarray:
    """``size`` real numbers from half of their spectrum."""
    lines = _last(x, axis)
    out = np.empty((*lines.shape[:-1], size), FLOAT)
    return _back(_run(fourier.REAL, lines, out, size, True, scale, 0), axis)


__all__ = [
    "are_powers_of_two",
    "can_transform_from_half",
    "can_transform_to_half",
    "fft_complex",
    "fft_half",
    "fft_real",
]
