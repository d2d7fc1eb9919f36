"""Discrete Fourier transforms: complex over several axes, real to half a spectrum and back over one.

No transform is normalised: ``scale`` multiplies the plain sum. The gradient of each is the transform in the
opposite direction with the same ``scale``.
"""

from __future__ import annotations

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.types import Operand, OpNamespace
from tenon.ops.dtype_queries import is_complex


def _resized(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _single_precision(x: Operand) -> bool:
    """Whether ``x`` is float32 or complex64."""
    return bool(np.dtype(x.dtype).itemsize == (8 if x.dtype.kind == "c" else 4))


class FftComplex(Primitive):
    """``sum x[j] exp(-2 pi i j k / n)`` over ``axes``, ``+`` with ``inverse``, times ``scale``."""

    kind = Kind.CONTRACT
    inputs = ("x",)

    def infer(self, x, *, axes, inverse=False, scale=1.0):
        """Complex numbers in ``x``'s shape."""
        return Aval(tuple(x.shape), np.dtype(np.complex64 if _single_precision(x) else np.complex128))

    def forward(self, xp, x, *, axes, inverse=False, scale=1.0):
        """NumPy's transform, without its normalisation of the inverse."""
        result = xp.fft.ifftn(x, axes=axes, norm="forward") if inverse else xp.fft.fftn(x, axes=axes)
        return result.astype(self.infer(x, axes=axes).dtype, copy=False) * result.dtype.type(scale)

    def torch_name(self, args, attrs):
        """``FftC2CBackward0``, or ``FftR2CBackward0`` of a real input."""
        return "FftC2CBackward0" if args and is_complex(args[0]) else "FftR2CBackward0"

    def vjp_x(self, f, g, out, x, *, axes, inverse=False, scale=1.0):
        back = f.fft_complex(g, axes=axes, inverse=not inverse, scale=scale)
        return back if is_complex(x) else f.real(back)


class FftHalf(Primitive):
    """The first ``n // 2 + 1`` frequencies of a real ``x`` along ``axis``, times ``scale``."""

    kind = Kind.CONTRACT
    grad_name = "FftR2CBackward0"
    inputs = ("x",)

    def infer(self, x, *, axis, scale=1.0):
        """Complex, with ``n // 2 + 1`` elements along ``axis``."""
        kind = np.dtype(np.complex64 if _single_precision(x) else np.complex128)
        return Aval(_resized(x.shape, axis, x.shape[axis] // 2 + 1), kind)

    def forward(self, xp, x, *, axis, scale=1.0):
        """NumPy's transform of real input."""
        result = xp.fft.rfft(x, axis=axis)
        return result.astype(self.infer(x, axis=axis).dtype, copy=False) * result.dtype.type(scale)

    # The omitted frequencies have no gradient. ``fft_real`` counts each frequency twice except the first and
    # the last of an even size, hence the weight of 1/2.
    def vjp_x(self, f, g, out, x, *, axis, scale=1.0):
        size = x.shape[axis]
        return f.fft_real(_weighted(f, g, axis, size, 0.5), axis=axis, size=size, scale=scale)


def _weighted(f: OpNamespace, x: Operand, axis: int, size: int, weight: float) -> Operand:
    """Multiply the frequencies of half a spectrum that represent two of the full one by ``weight``.

    ``size`` is the number of elements of the full spectrum.
    """
    paired = (size - 1) // 2
    parts = f.split(x, sizes=(1, paired, size // 2 - paired), axis=axis)
    return f.cat(parts[0], f.mul(parts[1], weight), parts[2], axis=axis)


class FftReal(Primitive):
    """The real signal of ``size`` elements whose half spectrum is ``x`` along ``axis``, times ``scale``."""

    kind = Kind.CONTRACT
    grad_name = "FftC2RBackward0"
    inputs = ("x",)

    def infer(self, x, *, axis, size, scale=1.0):
        """``size`` real numbers along ``axis``."""
        return Aval(
            _resized(x.shape, axis, size), np.dtype(np.float32 if _single_precision(x) else np.float64)
        )

    def forward(self, xp, x, *, axis, size, scale=1.0):
        """NumPy's inverse transform to real output, without its normalisation."""
        result = xp.fft.irfft(x, size, axis=axis, norm="forward")
        return result.astype(self.infer(x, axis=axis, size=size).dtype, copy=False) * result.dtype.type(scale)

    # every frequency but the first (and the last of an even size) represents two
    def vjp_x(self, f, g, out, x, *, axis, size, scale=1.0):
        back = _weighted(f, f.fft_half(g, axis=axis, scale=scale), axis, size, 2.0)
        return back if is_complex(x) else f.real(back)


fft_complex, fft_half, fft_real = FftComplex(), FftHalf(), FftReal()
