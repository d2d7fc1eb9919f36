"""Dropout layers: active in training, the identity in evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon.errors import ModuleValueError
from tenon.nn import functional as F
from tenon.nn.module import Module

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _DropoutNd(Module):
    """Base class of dropout layers: the probability, and whether to work in place."""

    __constants__ = ("p", "inplace")

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ModuleValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        """Probability and ``inplace``."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """Zeroes elements with probability ``p`` and scales the others by ``1 / (1 - p)``."""

    def forward(self, input: Tensor) -> Tensor:
        """``input``, with dropout in training."""
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """Zeroes whole channels of ``[N, C, L]``."""

    def forward(self, input: Tensor) -> Tensor:
        """``input``, with dropout in training."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Zeroes whole channels of ``[N, C, H, W]``."""

    def forward(self, input: Tensor) -> Tensor:
        """``input``, with dropout in training."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Zeroes whole channels of ``[N, C, D, H, W]``."""

    def forward(self, input: Tensor) -> Tensor:
        """``input``, with dropout in training."""
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout that preserves mean and variance, for networks with ``SELU``."""

    def forward(self, input: Tensor) -> Tensor:
        """``input``, with dropout in training."""
        return F.alpha_dropout(input, self.p, self.training, self.inplace)


class FeatureAlphaDropout(_DropoutNd):
    """``AlphaDropout`` of whole channels."""

    def forward(self, input: Tensor) -> Tensor:
        """``input``, with dropout in training."""
        return F.feature_alpha_dropout(input, self.p, self.training, self.inplace)
