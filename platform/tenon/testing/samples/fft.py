"""Samples of Fourier transforms."""

from __future__ import annotations

import numpy as np

from tenon.testing.samples.draw import normal, values
from tenon.testing.samples.table import add

_COMPLEX = values(1 + 2j, 3 - 1j, -0.5j, 2.0, 1 + 1j, -2 + 1j, dtype="complex128", shape=(2, 3))


def _spectrum(x, axes, inverse=False, scale=1.0):
    result = np.fft.ifftn(x, axes=axes, norm="forward") if inverse else np.fft.fftn(x, axes=axes)
    return (result * scale).astype(np.complex64 if x.dtype == np.float32 else np.complex128)


def _half(x, axis, scale=1.0):
    return (np.fft.rfft(x, axis=axis) * scale).astype(
        np.complex64 if x.dtype == np.float32 else np.complex128
    )


def _signal(x, axis, size, scale=1.0):
    return np.fft.irfft(x, size, axis=axis, norm="forward") * scale


add("fft_complex", "real", normal(3, 4), attrs={"axes": (1,)}, reference=_spectrum, order=0, narrow=False)
add("fft_complex", "both", _COMPLEX, attrs={"axes": (0, 1), "scale": 0.5}, reference=_spectrum, order=0)
add("fft_complex", "inverse", _COMPLEX, attrs={"axes": (1,), "inverse": True}, reference=_spectrum, order=0)
add("fft_half", "odd", normal(3, 5), attrs={"axis": 1}, reference=_half, order=0, narrow=False)
add("fft_half", "even", normal(4, 3), attrs={"axis": 0, "scale": 0.5}, reference=_half, order=0, narrow=False)
add("fft_real", "odd", _COMPLEX, attrs={"axis": 1, "size": 5}, reference=_signal, order=0)
add("fft_real", "even", _COMPLEX, attrs={"axis": 1, "size": 4, "scale": 0.5}, reference=_signal, order=0)
