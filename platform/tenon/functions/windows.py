"""``torch.signal.windows``: windows of ``M`` points, symmetric, or periodic with ``sym=False``.

A periodic window is a symmetric one of ``M + 1`` points without its last.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon import dtypes
from tenon.tensors.creation.create import wrap

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import DTypeLike
    from tenon.tensors.layout import layout
    from tenon.tensors.tensor import Tensor

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming",
    "hamming", "hann", "kaiser", "nuttall",
]  # fmt: skip


def _points(name: str, M: int, sym: bool) -> tuple[np.ndarray, int]:
    """Return the points ``0 .. M - 1`` and the last point of the symmetric window."""
    if operator.index(M) < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    return np.arange(M, dtype=np.float64), M - 1 if sym or M <= 1 else M


def _window(
    name: str, values: np.ndarray, dtype: DTypeLike | None, device: DeviceLike, requires_grad: bool
) -> Tensor:
    """Create the tensor of ``values``; ValueError unless its dtype is float32 or float64."""
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    if kind not in (dtypes.float32, dtypes.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {kind}")
    return wrap(np.asarray(values).astype(kind.numpy), device, requires_grad)


def general_cosine(
    M: int, *, a: Sequence[float], sym: bool = True, dtype: DTypeLike | None = None,
    layout: layout | None = None, device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the window that is a sum of cosines of 0, 1, 2, ... periods, with the weights ``a`` and
    alternating signs."""
    if not isinstance(a, Sequence):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    points, last = _points("general_cosine", M, sym)
    turns = points * (2 * math.pi / max(last, 1))
    waves = [(-1) ** i * weight * np.cos(i * turns) for i, weight in enumerate(a)]
    values = np.asarray(sum(waves)) if M != 1 else np.ones(1)
    return _window("general_cosine", values, dtype, device, requires_grad)


def general_hamming(
    M: int, *, alpha: float = 0.54, sym: bool = True, dtype: DTypeLike | None = None,
    layout: layout | None = None, device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the window ``alpha - (1 - alpha) cos`` of ``M`` points."""
    return general_cosine(
        M, a=[alpha, 1.0 - alpha], sym=sym, dtype=dtype, device=device, requires_grad=requires_grad
    )


def hann(
    M: int, *, sym: bool = True, dtype: DTypeLike | None = None, layout: layout | None = None,
    device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Hann window of ``M`` points: a raised cosine."""
    return general_hamming(M, alpha=0.5, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def hamming(
    M: int, *, sym: bool = True, dtype: DTypeLike | None = None, layout: layout | None = None,
    device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Hamming window of ``M`` points: ``0.54 - 0.46 cos``."""
    return general_hamming(M, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def blackman(
    M: int, *, sym: bool = True, dtype: DTypeLike | None = None, layout: layout | None = None,
    device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Blackman window of ``M`` points: a sum of three cosines."""
    return general_cosine(
        M, a=[0.42, 0.5, 0.08], sym=sym, dtype=dtype, device=device, requires_grad=requires_grad
    )


def nuttall(
    M: int, *, sym: bool = True, dtype: DTypeLike | None = None, layout: layout | None = None,
    device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Nuttall window of ``M`` points: a sum of four cosines."""
    weights = [0.3635819, 0.4891775, 0.1365995, 0.0106411]
    return general_cosine(M, a=weights, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def bartlett(
    M: int, *, sym: bool = True, dtype: DTypeLike | None = None, layout: layout | None = None,
    device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Bartlett window of ``M`` points: a triangle that is 0 at its ends."""
    points, last = _points("bartlett", M, sym)
    values = 1 - np.abs(2 * points / last - 1) if M > 1 else np.ones(M)
    return _window("bartlett", values, dtype, device, requires_grad)


def cosine(
    M: int, *, sym: bool = True, dtype: DTypeLike | None = None, layout: layout | None = None,
    device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the cosine window of ``M`` points: half a period of a sine."""
    points, last = _points("cosine", M, sym)
    return _window(
        "cosine", np.sin((points + 0.5) * (math.pi / max(last + 1, 1))), dtype, device, requires_grad
    )


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True,
    dtype: DTypeLike | None = None, layout: layout | None = None, device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the window ``exp(-|n - center| / tau)`` of ``M`` points; periodic windows may set ``center``."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    points, last = _points("exponential", M, sym)
    middle = last / 2 if center is None else center
    return _window("exponential", np.exp(-np.abs(points - middle) / tau), dtype, device, requires_grad)


def gaussian(
    M: int, *, std: float = 1.0, sym: bool = True, dtype: DTypeLike | None = None,
    layout: layout | None = None, device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Gaussian window of ``M`` points with a standard deviation of ``std`` points."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    points, last = _points("gaussian", M, sym)
    return _window("gaussian", np.exp(-0.5 * ((points - last / 2) / std) ** 2), dtype, device, requires_grad)


def kaiser(
    M: int, *, beta: float = 12.0, sym: bool = True, dtype: DTypeLike | None = None,
    layout: layout | None = None, device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Kaiser window of ``M`` points, of Bessel functions: narrower for larger ``beta``."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    points, last = _points("kaiser", M, sym)
    x = 2 * points / max(last, 1) - 1 if M != 1 else np.zeros(1)
    values = np.i0(beta * np.sqrt(np.maximum(1 - x**2, 0))) / np.i0(beta)
    return _window("kaiser", values, dtype, device, requires_grad)
