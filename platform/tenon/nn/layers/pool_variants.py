"""Adaptive and fractional max pooling, max unpooling, and Lp pooling layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from tenon.errors import ModuleValueError
from tenon.nn import functional as F
from tenon.nn.functional.arguments import PerAxis, per_axis
from tenon.nn.module import Module

if TYPE_CHECKING:
    from tenon.nn.functional.pooling import OutputSize
    from tenon.tensors.tensor import Tensor

__all__ = [
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]


class _AdaptiveMaxPoolNd(Module):
    __constants__ = ("output_size", "return_indices")

    def __init__(self, output_size: OutputSize, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def extra_repr(self) -> str:
        """The output size."""
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Maxima of ``output_size`` windows that cover ``[N, C, L]`` evenly."""

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, ...]:
        """The pooled input; with the indices of the maxima if ``return_indices``."""
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Maxima of windows that cover ``[N, C, H, W]`` evenly: ``output_size`` rows and columns of them."""

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, ...]:
        """The pooled input; with the indices of the maxima if ``return_indices``."""
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Maxima of windows that cover ``[N, C, D, H, W]`` evenly: ``output_size`` of them per axis."""

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, ...]:
        """The pooled input; with the indices of the maxima if ``return_indices``."""
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class _MaxUnpoolNd(Module):
    rank: ClassVar[int]

    def __init__(self, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0) -> None:
        super().__init__()
        self.kernel_size = per_axis(kernel_size, self.rank, "kernel_size")
        self.stride = per_axis(stride if stride is not None else kernel_size, self.rank, "stride")
        self.padding = per_axis(padding, self.rank, "padding")

    def extra_repr(self) -> str:
        """Kernel size, stride and padding."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """Partial inverse of ``MaxPool1d(return_indices=True)``: zeros, and the input at its indices."""

    rank = 1

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """``F.max_unpool1d``."""
        return F.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool2d(_MaxUnpoolNd):
    """Partial inverse of ``MaxPool2d(return_indices=True)``: zeros, and the input at its indices."""

    rank = 2

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """``F.max_unpool2d``."""
        return F.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool3d(_MaxUnpoolNd):
    """Partial inverse of ``MaxPool3d(return_indices=True)``: zeros, and the input at its indices."""

    rank = 3

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """``F.max_unpool3d``."""
        return F.max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class _LPPoolNd(Module):
    __constants__ = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __init__(
        self, norm_type: float, kernel_size: PerAxis, stride: PerAxis | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        """Norm type, kernel size, stride and ceil_mode."""
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride},"
            f" ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPoolNd):
    """The ``norm_type``-norm of each window of ``[N, C, L]``."""

    def forward(self, input: Tensor) -> Tensor:
        """``F.lp_pool1d``."""
        return F.lp_pool1d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool2d(_LPPoolNd):
    """The ``norm_type``-norm of each window of ``[N, C, H, W]``."""

    def forward(self, input: Tensor) -> Tensor:
        """``F.lp_pool2d``."""
        return F.lp_pool2d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool3d(_LPPoolNd):
    """The ``norm_type``-norm of each window of ``[N, C, D, H, W]``."""

    def forward(self, input: Tensor) -> Tensor:
        """``F.lp_pool3d``."""
        return F.lp_pool3d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class _FractionalMaxPoolNd(Module):
    __constants__ = ("kernel_size", "return_indices", "output_size", "output_ratio")
    rank: ClassVar[int]

    def __init__(
        self,
        kernel_size: PerAxis,
        output_size: PerAxis | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        rank, name = self.rank, type(self).__name__
        if output_size is None and output_ratio is None:
            raise ModuleValueError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ModuleValueError("only one of output_size and output_ratio may be specified")
        self.kernel_size = per_axis(kernel_size, rank, "kernel_size")
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else per_axis(output_size, rank, "output_size")
        if isinstance(output_ratio, (int, float)):
            output_ratio = (output_ratio,) * rank
        self.output_ratio = output_ratio
        if output_ratio is not None and not all(0 < ratio < 1 for ratio in output_ratio):
            ratio = output_ratio[0] if len(set(output_ratio)) == 1 else output_ratio
            raise ModuleValueError(f"output_ratio must be between 0 and 1 (got {ratio})")

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, ...]:
        """The pooled input; windows are placed anew at every call unless ``_random_samples`` were given."""
        return getattr(F, f"fractional_max_pool{self.rank}d")(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            self._random_samples,
        )


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """The largest elements of ``[N, C, H, W]`` in randomly placed windows."""

    rank = 2


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """The largest elements of ``[N, C, D, H, W]`` in randomly placed windows."""

    rank = 3
