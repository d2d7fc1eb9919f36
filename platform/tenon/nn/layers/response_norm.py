"""Normalisation by neighbouring channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon.errors import ModuleValueError
from tenon.nn import functional as F
from tenon.nn.functional.response_norm import over_channels
from tenon.nn.module import Module

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

__all__ = ["CrossMapLRN2d", "LocalResponseNorm"]


class _ChannelNorm(Module):
    """Base class of normalisations by ``size`` neighbouring channels."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def extra_repr(self) -> str:
        """Size and constants."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class LocalResponseNorm(_ChannelNorm):
    """Divides ``[N, C, ...]`` by a power of the mean square of ``size`` neighbouring channels."""

    __constants__ = ("size", "alpha", "beta", "k")

    def forward(self, input: Tensor) -> Tensor:
        """``F.local_response_norm``."""
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)


class CrossMapLRN2d(_ChannelNorm):
    """Divides ``[N, C, H, W]`` by a power of the mean square of at most ``size`` neighbouring channels.

    PyTorch's layer counts the first channel for all others, and its gradient is not that of its result; this
    one counts the neighbours alone.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)

    def forward(self, input: Tensor) -> Tensor:
        """The normalised input."""
        if input.raw.ndim != 4:
            raise ModuleValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.raw.ndim}D instead.")
        side = (self.size - 1) // 2
        square = over_channels(input, side, side)
        return input * (square * (self.alpha * (2 * side + 1) / self.size) + self.k).pow(-self.beta)
