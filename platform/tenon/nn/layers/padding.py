"""Padding layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tenon.errors import ModuleValueError
from tenon.nn import functional as F
from tenon.nn.functional.arguments import PerAxis, per_axis
from tenon.nn.module import Module

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _PadNd(Module):
    """Base class of padding layers over the last ``rank`` axes.

    ``padding`` has the widths before and after each of them, last axis first, or is one number for all.
    """

    __constants__: tuple[str, ...] = ("padding",)
    rank: ClassVar[int]
    mode: ClassVar[str]

    def __init__(self, padding: PerAxis) -> None:
        super().__init__()
        self.padding = per_axis(padding, 2 * self.rank, "padding")

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        """The widths."""
        return f"{self.padding}"


class _ConstantPadNd(_PadNd):
    """Base class of padding with a constant."""

    __constants__ = ("padding", "value")
    mode = "constant"

    def __init__(self, padding: PerAxis, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """The input with ``value`` around it."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """The widths and the value."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """``value`` at both ends of the last axis."""

    rank = 1


class ConstantPad2d(_ConstantPadNd):
    """``value`` around the last two axes."""

    rank = 2


class ConstantPad3d(_ConstantPadNd):
    """``value`` around the last three axes."""

    rank = 3


class _ZeroPadNd(_ConstantPadNd):
    def __init__(self, padding: PerAxis) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """The widths."""
        return f"{self.padding}"


class ZeroPad1d(_ZeroPadNd):
    """Zeros at both ends of the last axis."""

    rank = 1


class ZeroPad2d(_ZeroPadNd):
    """Zeros around the last two axes."""

    rank = 2


class ZeroPad3d(_ZeroPadNd):
    """Zeros around the last three axes."""

    rank = 3


class _ReflectionPadNd(_PadNd):
    mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """``[N, C, L]`` mirrored at its ends, which are not repeated."""

    rank = 1


class ReflectionPad2d(_ReflectionPadNd):
    """``[N, C, H, W]`` mirrored at its edges, which are not repeated."""

    rank = 2


class ReflectionPad3d(_ReflectionPadNd):
    """``[N, C, D, H, W]`` mirrored at its faces, which are not repeated."""

    rank = 3


class _ReplicationPadNd(_PadNd):
    mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """``[N, C, L]`` with its ends repeated."""

    rank = 1


class ReplicationPad2d(_ReplicationPadNd):
    """``[N, C, H, W]`` with its edges repeated."""

    rank = 2


class ReplicationPad3d(_ReplicationPadNd):
    """``[N, C, D, H, W]`` with its faces repeated."""

    rank = 3


class _CircularPadNd(_PadNd):
    mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        if input.ndim not in (self.rank + 1, self.rank + 2):
            raise ModuleValueError(
                f"expected {self.rank + 1}D or {self.rank + 2}D input (got {input.ndim}D input)"
            )
        return super().forward(input)


class CircularPad1d(_CircularPadNd):
    """``[N, C, L]`` continued from its other end."""

    rank = 1


class CircularPad2d(_CircularPadNd):
    """``[N, C, H, W]`` continued from its other edges."""

    rank = 2


class CircularPad3d(_CircularPadNd):
    """``[N, C, D, H, W]`` continued from its other faces."""

    rank = 3
