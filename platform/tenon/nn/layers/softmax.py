"""``Softmax``, ``LogSoftmax`` and others: layers that normalise along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon.errors import ShapeError
from tenon.nn import functional as F
from tenon.nn.module import Module

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

__all__ = ["LogSoftmax", "Softmax", "Softmax2d", "Softmin"]


class _AlongAxis(Module):
    """Base class of layers whose only setting is ``dim``."""

    __constants__ = ("dim",)

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        """The axis."""
        return f"dim={self.dim}"


class Softmax(_AlongAxis):
    """``exp(input) / sum(exp(input))`` along ``dim``."""

    def forward(self, input: Tensor) -> Tensor:
        """``F.softmax``."""
        return F.softmax(input, self.dim, _stacklevel=5)


class Softmin(_AlongAxis):
    """``softmax(-input)`` along ``dim``."""

    def forward(self, input: Tensor) -> Tensor:
        """``F.softmin``."""
        return F.softmin(input, self.dim, _stacklevel=5)


class LogSoftmax(_AlongAxis):
    """Logarithm of the softmax along ``dim``."""

    def forward(self, input: Tensor) -> Tensor:
        """``F.log_softmax``."""
        return F.log_softmax(input, self.dim, _stacklevel=5)


class Softmax2d(Module):
    """Softmax over the channels of ``[N, C, H, W]`` or ``[C, H, W]``."""

    def forward(self, input: Tensor) -> Tensor:
        """``F.softmax`` over axis -3."""
        if input.raw.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: expected input to be 3D or 4D, got {input.raw.ndim}D instead")
        return F.softmax(input, -3)
