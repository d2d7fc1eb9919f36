"""Fourier transforms of many lines of float32 by generated code; everything else by NumPy."""

from __future__ import annotations

import ctypes
import math
import struct
from typing import Any

import numpy as np

from tenon_cpu.jit import fourier
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.eager_ops.calls import FLOAT, plain

_COMPLEX = np.dtype(np.complex64)
#: Sizes whose buffers, 256 KB, any thread's stack holds.
_SMALLEST, _LARGEST = 8, 1024
#: Elements from which a second thread pays.
_SHARED = 1 << 17


def _is_power(size: int) -> bool:
    return _SMALLEST <= size <= _LARGEST and size & (size - 1) == 0


def powers(x: Any, axes: Any) -> bool:
    """Sizes of all axes are powers of 2 that code is generated for."""
    return bool(axes) and all(_is_power(x.shape[a]) for a in axes)


def halves(x: Any, axis: int) -> bool:
    """The same for pairs of numbers."""
    size = x.shape[axis]
    return _is_power(size // 2) and size % 2 == 0 and x.size // size >= fourier.LANES


def pairs(x: Any, axis: int, size: int) -> bool:
    """The same for half a spectrum."""
    return (
        _is_power(size // 2)
        and x.shape[axis] == size // 2 + 1
        and size % 2 == 0
        and x.size // x.shape[axis] >= fourier.LANES
    )


def _run(kind: str, x: Any, out: Any, size: int, inverse: bool, scale: float, inner: int) -> Any:
    """``out`` from the rows of ``x``, or from the columns of its matrices ``[size, inner]``."""
    lines = 0 if inner else x.size // x.shape[-1]
    blocks = -(-(inner or lines) // fourier.LANES)
    count = x.size // (size * inner) * blocks if inner else blocks
    transform = size if kind == fourier.COMPLEX else size // 2
    steps = [2 * inner] * 2 if inner else [a.shape[-1] * a.itemsize // 4 for a in (x, out)]
    factors, turns = fourier.factors(transform), fourier.turns(transform)
    arrays = [a.ctypes.data for a in (x, out, factors, turns)]
    number = struct.unpack("<q", struct.pack("<fi", scale, 0))[0]
    table = (ctypes.c_int64 * 10)(count, *arrays, *steps, lines, inner, number)
    threads = llvm.ALL if x.size >= _SHARED else 1
    fourier.kernel(kind, size, inverse, inner > 0)(ctypes.addressof(table), threads)
    return out


def fft_complex(x: Any, *, axes: Any, inverse: bool = False, scale: float = 1.0) -> Any:
    """Axis by axis, where each has enough lines."""
    inners = [math.prod(x.shape[a + 1 :]) if a != x.ndim - 1 else 0 for a in axes]
    if any((inner or x.size // x.shape[-1]) < fourier.LANES for inner in inners):
        return NotImplemented
    made = plain(x if x.dtype is _COMPLEX else x.astype(_COMPLEX))
    for number, (axis, inner) in enumerate(zip(axes, inners, strict=True), 1):
        factor = scale if number == len(axes) else 1.0
        made = _run(fourier.COMPLEX, made, np.empty_like(made), x.shape[axis], inverse, factor, inner)
    return made


def _last(x: Any, axis: int) -> Any:
    """``x`` with ``axis`` behind the others."""
    return plain(x if axis == x.ndim - 1 else np.moveaxis(x, axis, -1))


def _back(made: Any, axis: int) -> Any:
    return made if axis == made.ndim - 1 else np.ascontiguousarray(np.moveaxis(made, -1, axis))


def fft_half(x: Any, *, axis: int, scale: float = 1.0) -> Any:
    """Of many lines, as pairs of numbers."""
    size = x.shape[axis]
    given = _last(x, axis)
    out = np.empty((*given.shape[:-1], size // 2 + 1), _COMPLEX)
    return _back(_run(fourier.HALF, given, out, size, False, scale, 0), axis)


def fft_real(x: Any, *, axis: int, size: int, scale: float = 1.0) -> Any:
    """Of many lines, as pairs of numbers."""
    given = _last(x, axis)
    out = np.empty((*given.shape[:-1], size), FLOAT)
    return _back(_run(fourier.REAL, given, out, size, True, scale, 0), axis)


__all__ = ["fft_complex", "fft_half", "fft_real", "halves", "pairs", "powers"]
