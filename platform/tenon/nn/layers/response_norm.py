"""Normalisation by the neighbouring channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenon.errors import ModuleValueError
from tenon.nn import functional as F
from tenon.nn.functional.response_norm import over_channels
from tenon.nn.module import Module

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

__all__ = ["CrossMapLRN2d", "LocalResponseNorm"]


class LocalResponseNorm(Module):
    """Divides ``[N, C, ...]`` by a power of the mean square of ``size`` neighbouring channels."""

    __constants__ = ("size", "alpha", "beta", "k")

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        """``F.local_response_norm``."""
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """Size and constants."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Module):
    """Divides ``[N, C, H, W]`` by a power of the mean square of the channels around, at most ``size``.

    torch's layer never lets the first channel go, and its gradient is not that of its result; this one takes
    the neighbours alone.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Any) -> Any:
        """The normalised input."""
        if input.raw.ndim != 4:
            raise ModuleValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.raw.ndim}D instead.")
        side = (self.size - 1) // 2
        square = over_channels(input, side, side)
        return input * (square * (self.alpha * (2 * side + 1) / self.size) + self.k).pow(-self.beta)

    def extra_repr(self) -> str:
        """Size and constants."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
