"""Pooling layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tenon.nn import functional as F
from tenon.nn.functional.arguments import PerAxis, per_axis
from tenon.nn.module import Module

if TYPE_CHECKING:
    from tenon.nn.functional.pooling import OutputSize
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
    """Base class of max pooling layers; ``function`` is the name in ``nn.functional``."""

    __constants__ = ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode")
    function: ClassVar[str]

    def __init__(
        self, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
        dilation: PerAxis = 1, return_indices: bool = False, ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, ...]:
        """The pooled input; with the indices of the maxima if ``return_indices``."""
        return getattr(F, self.function)(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )

    def extra_repr(self) -> str:
        """Kernel size, stride, padding, dilation and ceil_mode."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding},"
            f" dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """Largest element of each window of ``[N, C, L]``."""

    function = "max_pool1d"


class MaxPool2d(_MaxPoolNd):
    """Largest element of each window of ``[N, C, H, W]``."""

    function = "max_pool2d"


class MaxPool3d(_MaxPoolNd):
    """Largest element of each window of ``[N, C, D, H, W]``."""

    function = "max_pool3d"


class _AvgPoolNd(Module):
    __constants__: tuple[str, ...] = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
    kernel_size: PerAxis
    stride: PerAxis
    padding: PerAxis

    def extra_repr(self) -> str:
        """Kernel size, stride and padding."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """Mean of each window of ``[N, C, L]``."""

    def __init__(
        self, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
    ) -> None:  # fmt: skip
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


class _AvgPoolWithDivisor(_AvgPoolNd):
    """Base class of average pooling over two and three axes; ``function`` is the name in
    ``nn.functional``."""

    __constants__ = (*_AvgPoolNd.__constants__, "divisor_override")
    function: ClassVar[str]

    def __init__(
        self, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
        ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        """The pooled input."""
        return getattr(F, self.function)(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool2d(_AvgPoolWithDivisor):
    """Mean of each window of ``[N, C, H, W]``."""

    function = "avg_pool2d"


class AvgPool3d(_AvgPoolWithDivisor):
    """Mean of each window of ``[N, C, D, H, W]``."""

    function = "avg_pool3d"


class _AdaptiveAvgPoolNd(Module):
    __constants__ = ("output_size",)

    def __init__(self, output_size: OutputSize) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        """The output size."""
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Means of ``output_size`` windows that cover ``[N, C, L]`` evenly."""

    def forward(self, input: Tensor) -> Tensor:
        """The pooled input."""
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Means of windows that cover ``[N, C, H, W]`` evenly: ``output_size`` rows and columns of them."""

    def forward(self, input: Tensor) -> Tensor:
        """The pooled input."""
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Means of windows that cover ``[N, C, D, H, W]`` evenly: ``output_size`` of them per axis."""

    def forward(self, input: Tensor) -> Tensor:
        """The pooled input."""
        return F.adaptive_avg_pool3d(input, self.output_size)
