"""The randomized leaky ReLU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon.nn import functional as F
from tenon.nn.module import Module

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

__all__ = ["RReLU"]


class RReLU(Module):
    """The input where positive, else times a slope drawn between ``lower`` and ``upper`` (in evaluation their
    mean)."""

    __constants__ = ("lower", "upper", "inplace")

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """``F.rrelu``."""
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        """The bounds."""
        return f"lower={self.lower}, upper={self.upper}{', inplace=True' if self.inplace else ''}"
