"""torch.fft: discrete Fourier transforms over one, two or all axes, with gradients.

Every function is one or two of the ops of ``tenon/ops/fft.py`` on the input, trimmed or padded to the sizes
requested. ``norm`` is the direction that divides by the number of elements: "backward" (the default) the
inverse transform, "forward" the other one, "ortho" both by the square root.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon import dtypes, ops
from tenon.compat.node_names import titled
from tenon.compat.rerouting import register
from tenon.device import as_device
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.functions.derived import write_into
from tenon.kernels.shapes import normalize_axis
from tenon.tensors.creation.create import wrap
from tenon.tensors.creation.factories import kind_of

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import DTypeLike
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Axes

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn",
    "ifftshift", "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq",
    "rfftn",
]  # fmt: skip

_LAST_TWO = (-2, -1)


def _scale(norm: str | None, count: int, inverse: bool) -> float:
    """Return the factor of the sum over ``count`` elements."""
    if norm not in (None, "backward", "ortho", "forward"):
        raise ArgumentError(f'Invalid normalization mode: "{norm}"; use "backward", "forward" or "ortho".')
    if norm == "ortho":
        return 1 / math.sqrt(count)
    return 1 / count if inverse == (norm != "forward") else 1.0


def _ready(name: str, x: Tensor, real: bool = False) -> Tensor:
    """Return ``x``, integers as floats; DTypeError for a dtype that has no transform."""
    kind = x.raw.dtype
    if real and kind.kind == "c":
        raise DTypeError(f"{name} expects a real input tensor, but got {x.dtype}")
    if kind.kind in "biu":
        return x.to(dtypes.get_default_dtype())
    if kind.kind not in "fc" or kind.itemsize < 4:
        raise DTypeError(f"{name}: Unsupported dtype {x.dtype}; cast with .float() first.")
    return x


def _cut(x: Tensor, sizes: Sequence[int], axes: Sequence[int]) -> Tensor:
    """Trim ``x``, or pad it with zeros at the end, to ``sizes`` along ``axes``."""
    if any(s < 1 for s in sizes):
        raise ShapeError(f"Invalid number of data points ({min(sizes)}) specified")
    widths = [(0, 0)] * x.raw.ndim
    for size, axis in zip(sizes, axes, strict=True):
        widths[axis] = (0, size - x.raw.shape[axis])
    return ops.pad(x, widths=tuple(widths)) if any(b for _, b in widths) else x


def _axes_and_sizes(x: Tensor, s: Axes, dim: Axes) -> tuple[list[int], list[int]]:
    """Return the axes and their sizes, -1 for the size in ``x``."""
    rank = x.raw.ndim
    s, dim = ((v,) if isinstance(v, int) else v for v in (s, dim))
    if dim is None:
        if s is not None and len(s) > rank:
            raise ShapeError(f"Got shape with {len(s)} values but input tensor only has {rank} dimensions.")
        dim = range(rank) if s is None else range(rank - len(s), rank)
    axes = [normalize_axis(d, rank) for d in dim]
    if len(set(axes)) != len(axes):
        raise ShapeError(f"FFT dims must be unique, got {tuple(dim)}")
    if s is not None and len(s) != len(axes):
        raise ShapeError(f"When given, dim and shape arguments must have the same length, got {s} and {dim}")
    return axes, [-1] * len(axes) if s is None else list(s)


def _complex(name: str, x: Tensor, s: Axes, dim: Axes, norm: str | None, inverse: bool) -> Tensor:
    x = _ready(name, x)
    axes, sizes = _axes_and_sizes(x, s, dim)
    sizes = [x.raw.shape[a] if n == -1 else n for n, a in zip(sizes, axes, strict=True)]
    x = _cut(x, sizes, axes)
    if not axes:
        return x if x.raw.dtype.kind == "c" else ops.cast(x, dtype=np.result_type(x.raw.dtype, np.complex64))
    scale = _scale(norm, math.prod(sizes), inverse)
    return ops.fft_complex(x, axes=tuple(axes), inverse=inverse, scale=scale)


def _half(name: str, x: Tensor, s: Axes, dim: Axes, norm: str | None, inverse: bool = False) -> Tensor:
    """Return half the spectrum of a real signal: a real transform of the last axis, then complex ones."""
    x = _ready(name, x, real=True)
    axes, sizes = _axes_and_sizes(x, s, dim)
    if not axes:
        raise ShapeError(f"{name} must transform at least one axis")
    sizes = [x.raw.shape[a] if n == -1 else n for n, a in zip(sizes, axes, strict=True)]
    x = _cut(x, sizes, axes)
    result = ops.fft_half(x, axis=axes[-1], scale=_scale(norm, math.prod(sizes), inverse))
    return ops.fft_complex(result, axes=tuple(axes[:-1])) if len(axes) > 1 else result


def _signal(name: str, x: Tensor, s: Axes, dim: Axes, norm: str | None, inverse: bool = True) -> Tensor:
    """Return the real signal of half a spectrum: complex inverse transforms, then a real one of the last
    axis."""
    x = _ready(name, x)
    axes, sizes = _axes_and_sizes(x, s, dim)
    if not axes:
        raise ShapeError(f"{name} must transform at least one axis")
    last = sizes[-1] if sizes[-1] != -1 else 2 * (x.raw.shape[axes[-1]] - 1)
    sizes = [x.raw.shape[a] if n == -1 else n for n, a in zip(sizes, axes, strict=True)]
    if last < 1:
        raise ShapeError(f"Invalid number of data points ({last}) specified")
    x = _cut(x, [*sizes[:-1], last // 2 + 1], axes)
    if len(axes) > 1:
        x = ops.fft_complex(x, axes=tuple(axes[:-1]), inverse=True)
    scale = _scale(norm, math.prod(sizes[:-1]) * last, inverse)
    return ops.fft_real(x, axis=axes[-1], size=last, scale=scale)


def _sizes_of(n: int | None) -> tuple[int, ...] | None:
    if n is not None and n < 1:
        raise ShapeError(f"Invalid number of data points ({n}) specified")
    return None if n is None else (n,)


def fft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Return the Fourier transform of ``input`` along ``dim``, trimmed or zero-padded to ``n`` elements."""
    return write_into(out, _complex("fft", input, _sizes_of(n), (dim,), norm, False))


@titled(lambda input, *a, **k: "" if input.raw.dtype.kind == "c" else "Conj0")
def ifft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Return the inverse transform of ``fft``, with the same parameters."""
    return write_into(out, _complex("ifft", input, _sizes_of(n), (dim,), norm, True))


@titled("FftC2C0")
def fft2(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] = _LAST_TWO,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return the Fourier transform over the two axes ``dim``, trimmed or zero-padded to the sizes ``s``."""
    return write_into(out, _complex("fft2", input, s, dim, norm, False))


@titled("FftC2C0")
def ifft2(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] = _LAST_TWO,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return the inverse transform of ``fft2``, with the same parameters."""
    return write_into(out, _complex("ifft2", input, s, dim, norm, True))


@titled("FftC2C0")
def fftn(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return the Fourier transform over the axes ``dim``, by default the last ``len(s)`` axes, or all."""
    return write_into(out, _complex("fftn", input, s, dim, norm, False))


@titled("FftC2C0")
def ifftn(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return the inverse transform of ``fftn``, with the same parameters."""
    return write_into(out, _complex("ifftn", input, s, dim, norm, True))


def rfft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Return the first ``n // 2 + 1`` frequencies of a real ``input`` along ``dim``, as ``fft`` has them."""
    return write_into(out, _half("rfft", input, _sizes_of(n), (dim,), norm))


def irfft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Return the inverse transform of ``rfft``: ``n`` real numbers along ``dim``, by default
    ``2 (size - 1)``."""
    return write_into(out, _signal("irfft", input, _sizes_of(n), (dim,), norm))


@titled("FftR2C0")
def rfft2(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] = _LAST_TWO,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return half the spectrum of real ``input`` over two axes: the last has ``size // 2 + 1`` elements."""
    return write_into(out, _half("rfft2", input, s, dim, norm))


def irfft2(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] = _LAST_TWO,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return the inverse transform of ``rfft2``, real numbers; ``s`` are the sizes of the result."""
    return write_into(out, _signal("irfft2", input, s, dim, norm))


@titled("FftR2C0")
def rfftn(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return half the spectrum of real ``input`` over ``dim``: the last has ``size // 2 + 1`` elements."""
    return write_into(out, _half("rfftn", input, s, dim, norm))


def irfftn(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return the inverse transform of ``rfftn``, real numbers; ``s`` are the sizes of the result."""
    return write_into(out, _signal("irfftn", input, s, dim, norm))


def hfft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Return the real spectrum, of ``n`` elements, of a Hermitian signal with ``input`` as its first half."""
    return write_into(out, _signal("hfft", _conjugated(input), _sizes_of(n), (dim,), norm, inverse=False))


def ihfft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Return the inverse transform of ``hfft``: the first half of a Hermitian signal."""
    return write_into(out, _half("ihfft", input, _sizes_of(n), (dim,), norm, inverse=True).conj())


def hfft2(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] = _LAST_TWO,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return ``hfft`` along the last of two axes, after ``fft`` along the other."""
    return write_into(out, _signal("hfft2", _conjugated(input), s, dim, norm, inverse=False))


@titled("FftC2C0")
def ihfft2(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] = _LAST_TWO,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return the inverse transform of ``hfft2``."""
    return write_into(out, _half("ihfft2", input, s, dim, norm, inverse=True).conj())


def hfftn(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return ``hfft`` along the last axis of ``dim``, after ``fft`` along the others."""
    return write_into(out, _signal("hfftn", _conjugated(input), s, dim, norm, inverse=False))


@titled("FftC2C0")
def ihfftn(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return the inverse transform of ``hfftn``."""
    return write_into(out, _half("ihfftn", input, s, dim, norm, inverse=True).conj())


def _conjugated(x: Tensor) -> Tensor:
    return x.conj() if x.raw.dtype.kind == "c" else x


def fftfreq(
    n: int, d: float = 1.0, *, out: Tensor | None = None, dtype: DTypeLike | None = None,
    device: DeviceLike = None, requires_grad: bool = False, **rest: object,
) -> Tensor:  # fmt: skip
    """Return the ``n`` frequencies of the result of ``fft``, for samples at distance ``d``."""
    result = _frequencies(n, d, True, kind_of(dtype).numpy)
    return write_into(out, wrap(result, as_device(device), requires_grad))


def rfftfreq(
    n: int, d: float = 1.0, *, out: Tensor | None = None, dtype: DTypeLike | None = None,
    device: DeviceLike = None, requires_grad: bool = False, **rest: object,
) -> Tensor:  # fmt: skip
    """Return the ``n // 2 + 1`` frequencies of the result of ``rfft``, for samples at distance ``d``."""
    result = _frequencies(n, d, False, kind_of(dtype).numpy)
    return write_into(out, wrap(result, as_device(device), requires_grad))


def _frequencies(n: int, d: float, signed: bool, dtype: np.dtype) -> np.ndarray:
    """Return the frequencies of ``n`` samples; those in the upper half are negative if ``signed``, else left
    out."""
    n = operator.index(n)
    own = dtype if dtype.char in "fd" else np.dtype(np.float32)
    result = np.arange(n if signed else n // 2 + 1, dtype=own)
    if signed:
        result[(n + 1) // 2 :] -= own.type(n)
    with np.errstate(divide="ignore", invalid="ignore"):  # no samples
        result *= own.type(np.float64(1) / (n * d))
    return result.astype(dtype, copy=False)


def _all(x: Tensor, dim: int | Sequence[int] | None) -> tuple[int, ...]:
    if dim is None:
        return tuple(range(x.raw.ndim))
    return (dim,) if isinstance(dim, int) else tuple(dim)


def fftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Return a copy with frequency zero moved from the start to the middle of ``dim`` (None: all axes)."""
    axes = _all(input, dim)
    return input.roll([input.raw.shape[a] // 2 for a in axes], axes) if axes else input.clone()


def ifftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Return a copy with frequency zero moved from the middle to the start: the inverse of ``fftshift``."""
    axes = _all(input, dim)
    return input.roll([(input.raw.shape[a] + 1) // 2 for a in axes], axes) if axes else input.clone()


register("torch.fft", {name: globals()[name] for name in __all__}, bare=["fftfreq", "rfftfreq"])
