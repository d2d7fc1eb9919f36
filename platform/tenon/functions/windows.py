"""``torch.signal.windows``: windows of ``M`` points, symmetric, or periodic with ``sym=False``.

A periodic window is a symmetric one of ``M + 1`` points without its last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon import dtypes
from tenon.tensors.creation.create import wrap

if TYPE_CHECKING:
    from tenon.dtypes import dtype
    from tenon.tensors.tensor import Tensor

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming",
    "hamming", "hann", "kaiser", "nuttall",
]  # fmt: skip


def _points(name: str, M: int, sym: bool) -> tuple[np.ndarray[Any, Any], int]:
    """``0 .. M - 1``, and the last point of the symmetric window."""
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    return np.arange(M, dtype=np.float64), M - 1 if sym or M <= 1 else M


def _made(name: str, values: Any, dtype: dtype | None, device: Any, requires_grad: bool) -> Tensor:
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    if kind not in (dtypes.float32, dtypes.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {kind}")
    return wrap(np.asarray(values).astype(kind.numpy), device, requires_grad)


def general_cosine(
    M: int, *, a: Sequence[float], sym: bool = True, dtype: dtype | None = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Cosines of whole periods with the weights ``a``, whose signs alternate."""
    if not isinstance(a, Sequence):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    points, last = _points("general_cosine", M, sym)
    turns = points * (2 * math.pi / max(last, 1))
    values = (
        sum((-1) ** i * weight * np.cos(i * turns) for i, weight in enumerate(a)) if M != 1 else np.ones(1)
    )
    return _made("general_cosine", values, dtype, device, requires_grad)


def general_hamming(
    M: int, *, alpha: float = 0.54, sym: bool = True, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``alpha - (1 - alpha) cos``."""
    return general_cosine(
        M, a=[alpha, 1.0 - alpha], sym=sym, dtype=dtype, device=device, requires_grad=requires_grad
    )


def hann(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Hann's raised cosine."""
    return general_hamming(M, alpha=0.5, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def hamming(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Hamming's window: ``0.54 - 0.46 cos``."""
    return general_hamming(M, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def blackman(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Blackman's three cosines."""
    return general_cosine(
        M, a=[0.42, 0.5, 0.08], sym=sym, dtype=dtype, device=device, requires_grad=requires_grad
    )


def nuttall(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Nuttall's four cosines."""
    weights = [0.3635819, 0.4891775, 0.1365995, 0.0106411]
    return general_cosine(M, a=weights, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def bartlett(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Bartlett's triangle, 0 at its ends."""
    points, last = _points("bartlett", M, sym)
    values = 1 - np.abs(2 * points / last - 1) if M > 1 else np.ones(M)
    return _made("bartlett", values, dtype, device, requires_grad)


def cosine(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Half a period of a sine, between its zeros."""
    points, last = _points("cosine", M, sym)
    return _made(
        "cosine", np.sin((points + 0.5) * (math.pi / max(last + 1, 1))), dtype, device, requires_grad
    )


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``exp(-|n - center| / tau)``; a periodic window may have its own ``center``."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    points, last = _points("exponential", M, sym)
    middle = last / 2 if center is None else center
    return _made("exponential", np.exp(-np.abs(points - middle) / tau), dtype, device, requires_grad)


def gaussian(
    M: int, *, std: float = 1.0, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A bell of deviation ``std`` points."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    points, last = _points("gaussian", M, sym)
    return _made("gaussian", np.exp(-0.5 * ((points - last / 2) / std) ** 2), dtype, device, requires_grad)


def kaiser(
    M: int, *, beta: float = 12.0, sym: bool = True, dtype: dtype | None = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Kaiser's window of Bessel functions: the larger ``beta``, the narrower."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    points, last = _points("kaiser", M, sym)
    place = 2 * points / max(last, 1) - 1 if M != 1 else np.zeros(1)
    values = np.i0(beta * np.sqrt(np.maximum(1 - place**2, 0))) / np.i0(beta)
    return _made("kaiser", values, dtype, device, requires_grad)
