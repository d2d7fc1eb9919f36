"""Convolution layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from tenon.errors import ModuleValueError
from tenon.nn import functional as F
from tenon.nn import init
from tenon.nn.functional.arguments import PerAxis, per_axis
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.creation.factories import empty, empty_like
from tenon.tensors.memory_formats import contiguous_format

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import dtype
    from tenon.tensors.tensor import Tensor

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """Base class of convolution layers; ``rank`` is the number of spatial axes."""

    __constants__ = (
        "stride", "padding", "dilation", "groups", "padding_mode", "output_padding", "in_channels",
        "out_channels",
        "kernel_size",
    )  # fmt: skip
    rank: ClassVar[int]
    transposed = False
    weight: Tensor
    bias: Tensor | None
    padding: tuple[int, ...] | str

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: PerAxis, stride: PerAxis = 1,
        padding: PerAxis | str = 0, dilation: PerAxis = 1, groups: int = 1, bias: bool = True,
        padding_mode: str = "zeros", device: DeviceLike = None, dtype: dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        rank = self.rank
        if groups <= 0:
            raise ModuleValueError(f"groups must be a positive integer, got {groups}")
        if in_channels % groups:
            raise ModuleValueError(f"in_channels must be divisible by groups: {in_channels} and {groups}")
        if out_channels % groups:
            raise ModuleValueError(f"out_channels must be divisible by groups: {out_channels} and {groups}")
        if padding_mode not in _MODES:
            raise ModuleValueError(
                f"padding_mode must be one of {_MODES}, but got padding_mode='{padding_mode}'"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = per_axis(kernel_size, rank, "kernel_size")
        steps = stride if isinstance(stride, tuple | list) else [stride]
        if padding == "same" and any(s != 1 for s in steps):
            raise ModuleValueError(
                f"padding='same' is not supported for strided convolutions, got stride={stride}"
            )
        self.stride = per_axis(stride, rank, "stride")
        self.dilation = per_axis(dilation, rank, "dilation")
        self.padding = padding if isinstance(padding, str) else per_axis(padding, rank, "padding")
        self.output_padding = (0,) * rank
        self.groups = groups
        self.padding_mode = padding_mode
        self._reversed_padding_repeated_twice = self._widths()
        self.weight = Parameter(empty(self._weight_shape(), device=device, dtype=dtype))
        self.register_parameter(
            "bias", Parameter(empty(out_channels, device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()

    def _weight_shape(self) -> tuple[int, ...]:
        """Return ``(out_channels, in_channels / groups, *kernel_size)``."""
        return (self.out_channels, self.in_channels // self.groups, *self.kernel_size)

    def _widths(self) -> list[int]:
        """Return the padding as ``F.pad`` takes it: widths before and after each axis, last axis first."""
        if not isinstance(self.padding, str):
            return [p for p in reversed(self.padding) for _ in range(2)]
        if self.padding not in ("same", "valid"):
            raise ModuleValueError(
                f"Invalid padding string {self.padding!r}, should be one of {{'same', 'valid'}}"
            )
        if self.padding == "valid":
            return [0, 0] * self.rank
        widths = []
        for d, k in zip(reversed(self.dilation), reversed(self.kernel_size), strict=True):
            total = d * (k - 1)
            widths += [total // 2, total - total // 2]
        return widths

    def reset_parameters(self) -> None:
        """Draw weight and bias uniformly within ``1 / sqrt(fan in)``."""
        with no_grad():
            weight = self.weight
            if weight.is_contiguous():
                init.kaiming_uniform_(weight, a=math.sqrt(5))
            else:  # draw in C order, so that a seed gives the same weights in every memory format
                plain = empty_like(weight, memory_format=contiguous_format)
                weight.copy_(init.kaiming_uniform_(plain, a=math.sqrt(5)))
            if self.bias is not None:
                fan_in = self.weight.shape[1] * math.prod(self.weight.shape[2:])
                if fan_in:
                    bound = 1 / math.sqrt(fan_in)
                    init.uniform_(self.bias, -bound, bound)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        convolve = getattr(F, f"conv{self.rank}d")
        if self.padding_mode == "zeros":
            return convolve(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
        return convolve(input, weight, bias, self.stride, 0, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        """The convolution of ``input`` with ``weight``, plus ``bias``."""
        return self._conv_forward(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Channels, kernel, stride, and what differs from the defaults."""
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        )
        if self.padding != (0,) * len(self.padding):
            text += f", padding={self.padding}"
        if self.dilation != (1,) * len(self.dilation):
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * len(self.output_padding):
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class Conv1d(_ConvNd):
    """Cross-correlation of ``[N, in_channels, L]`` with ``out_channels`` learned kernels."""

    rank = 1


class Conv2d(_ConvNd):
    """Cross-correlation of ``[N, in_channels, H, W]`` with ``out_channels`` learned kernels."""

    rank = 2


class Conv3d(_ConvNd):
    """Cross-correlation of ``[N, in_channels, D, H, W]`` with ``out_channels`` learned kernels."""

    rank = 3


class _ConvTransposeNd(_ConvNd):
    """Base class of transposed convolution layers."""

    transposed = True
    padding: tuple[int, ...]

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: PerAxis, stride: PerAxis = 1,
        padding: PerAxis = 0, output_padding: PerAxis = 0, groups: int = 1, bias: bool = True,
        dilation: PerAxis = 1, padding_mode: str = "zeros", device: DeviceLike = None,
        dtype: dtype | None = None,
    ) -> None:  # fmt: skip
        if padding_mode != "zeros":
            raise ModuleValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        padding = per_axis(padding, self.rank, "padding")
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode,
            device, dtype,
        )  # fmt: skip
        self.output_padding = per_axis(output_padding, self.rank, "output_padding")

    def _weight_shape(self) -> tuple[int, ...]:
        """Return ``(in_channels, out_channels / groups, *kernel_size)``."""
        return (self.in_channels, self.out_channels // self.groups, *self.kernel_size)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The transposed convolution of ``input``, plus ``bias``; its spatial sizes are ``output_size`` if
        given."""
        return self._conv_forward(input, self.weight, self.bias, output_size)

    def _conv_forward(
        self, input: Tensor, weight: Tensor, bias: Tensor | None, output_size: Sequence[int] | None = None
    ) -> Tensor:
        extra = self.output_padding if output_size is None else self._padding_for(input, output_size)
        convolve = getattr(F, f"conv_transpose{self.rank}d")
        return convolve(input, weight, bias, self.stride, self.padding, extra, self.groups, self.dilation)

    def _padding_for(self, input: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """Return the ``output_padding`` that gives the output ``output_size``."""
        rank, leading = self.rank, input.ndim - self.rank
        sizes = [int(s) for s in output_size]
        if len(sizes) == input.ndim:
            sizes = sizes[leading:]
        if len(sizes) != rank:
            raise ModuleValueError(
                f"ConvTranspose{rank}D: for {input.ndim}D input, output_size must have {rank} or {input.ndim}"
                f" elements (got {len(sizes)})"
            )
        minima = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(
                input.shape[leading:],
                self.stride,
                self.padding,
                self.dilation,
                self.kernel_size,
                strict=True,
            )
        ]
        maxima = [n + s - 1 for n, s in zip(minima, self.stride, strict=True)]
        if any(not low <= n <= high for n, low, high in zip(sizes, minima, maxima, strict=True)):
            raise ModuleValueError(
                f"requested an output size of {sizes}, but valid sizes range from {minima} to {maxima} (for"
                f" an input of {input.shape[2:]})"
            )
        return tuple(n - low for n, low in zip(sizes, minima, strict=True))


class ConvTranspose1d(_ConvTransposeNd):
    """The transpose of ``Conv1d``: ``[N, in_channels, L]`` spread over ``out_channels`` learned kernels."""

    rank = 1


class ConvTranspose2d(_ConvTransposeNd):
    """The transpose of ``Conv2d``: ``[N, in_channels, H, W]`` spread over ``out_channels`` learned
    kernels."""

    rank = 2


class ConvTranspose3d(_ConvTransposeNd):
    """The transpose of ``Conv3d``: ``[N, in_channels, D, H, W]`` spread over ``out_channels`` learned
    kernels."""

    rank = 3
