"""Pooling layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenon.nn import functional as F
from tenon.nn.functional.arguments import per_axis
from tenon.nn.module import Module

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
]


class _MaxPoolNd(Module):
    __constants__ = ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode")

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        """The windows' layout."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding},"
            f" dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """Largest element of each window of ``[N, C, L]``."""

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, ...]:
        """The pooled input; with its indices if ``return_indices``."""
        return F.max_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )


class MaxPool2d(_MaxPoolNd):
    """Largest element of each window of ``[N, C, H, W]``."""

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, ...]:
        """The pooled input; with its indices if ``return_indices``."""
        return F.max_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )


class MaxPool3d(_MaxPoolNd):
    """Largest element of each window of ``[N, C, D, H, W]``."""

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, ...]:
        """The pooled input; with its indices if ``return_indices``."""
        return F.max_pool3d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )


class _AvgPoolNd(Module):
    __constants__: tuple[str, ...] = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
    kernel_size: Any
    stride: Any
    padding: Any

    def extra_repr(self) -> str:
        """The windows' layout."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """Mean of each window of ``[N, C, L]``."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = per_axis(kernel_size, 1, "kernel_size")
        self.stride = per_axis(stride if stride is not None else kernel_size, 1, "stride")
        self.padding = per_axis(padding, 1, "padding")
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """The pooled input."""
        return F.avg_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )


class _WholeAvgPoolNd(_AvgPoolNd):
    """Base class of average pooling over two and three axes."""

    __constants__ = (*_AvgPoolNd.__constants__, "divisor_override")

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override


class AvgPool2d(_WholeAvgPoolNd):
    """Mean of each window of ``[N, C, H, W]``."""

    def forward(self, input: Tensor) -> Tensor:
        """The pooled input."""
        return F.avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool3d(_WholeAvgPoolNd):
    """Mean of each window of ``[N, C, D, H, W]``."""

    def forward(self, input: Tensor) -> Tensor:
        """The pooled input."""
        return F.avg_pool3d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class _AdaptiveAvgPoolNd(Module):
    __constants__ = ("output_size",)

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        """The output's sizes."""
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Means over windows laid out so that ``[N, C, L]`` gets ``output_size`` places."""

    def forward(self, input: Tensor) -> Tensor:
        """The pooled input."""
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Means over windows laid out so that ``[N, C, H, W]`` gets ``output_size`` rows and columns."""

    def forward(self, input: Tensor) -> Tensor:
        """The pooled input."""
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Means over windows laid out so that ``[N, C, D, H, W]`` gets ``output_size``."""

    def forward(self, input: Tensor) -> Tensor:
        """The pooled input."""
        return F.adaptive_avg_pool3d(input, self.output_size)
