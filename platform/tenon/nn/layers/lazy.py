"""Lazy layers: infer their input size from the first input, then become the layer they are named after.

``LazyLinear(10)`` becomes a ``Linear(n, 10)`` at its first input ``[..., n]``. Call a model of them once with
a dummy batch before passing its parameters to an optimizer or to data parallel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tenon import dtypes
from tenon.errors import ModuleError, ModuleValueError
from tenon.nn.layers.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    _ConvNd,
    _ConvTransposeNd,
)
from tenon.nn.layers.instance_norm import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from tenon.nn.layers.linear import Linear
from tenon.nn.layers.norm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _NormBase
from tenon.nn.lazy import LazyModuleMixin
from tenon.nn.parameter import UninitializedBuffer, UninitializedParameter
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.creation.create import tensor

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import dtype
    from tenon.nn.functional.arguments import PerAxis
    from tenon.tensors.tensor import Tensor

__all__ = [
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "LazyLinear",
]


class LazyLinear(LazyModuleMixin, Linear):
    """``Linear`` with ``in_features`` taken from the last axis of the first input."""

    cls_to_become = Linear

    def __init__(
        self, out_features: int, bias: bool = True, device: DeviceLike = None, dtype: dtype | None = None
    ) -> None:
        super().__init__(0, 0, False)
        self.out_features = out_features
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Initialise as ``Linear`` does; do nothing while the input size is unknown."""
        if self.in_features != 0 and not self.has_uninitialized_params():
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Take ``in_features`` from ``input``; keep values that came from a state dict."""
        lazy = self.has_uninitialized_params()
        self.in_features = input.shape[-1]
        if lazy:
            with no_grad():
                self.weight.materialize((self.out_features, self.in_features))
                if self.bias is not None:
                    self.bias.materialize((self.out_features,))
                self.reset_parameters()


class _LazyChannels(LazyModuleMixin, _ConvNd):
    """Base class of lazy convolutions, transposed or not."""

    def _defer_parameters(
        self, out_channels: int, bias: bool, device: DeviceLike, dtype: dtype | None
    ) -> None:
        """Replace the parameters, created for 0 channels, by uninitialized ones."""
        if out_channels % self.groups:
            raise ModuleValueError(
                f"out_channels must be divisible by groups: {out_channels} and {self.groups}"
            )
        self.out_channels = out_channels
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Initialise as the convolution does; do nothing while the input size is unknown."""
        if self.in_channels != 0 and not self.has_uninitialized_params():
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor, *args: object, **kwargs: object) -> None:
        """Take ``in_channels`` from ``input``; keep values that came from a state dict."""
        lazy = self.has_uninitialized_params()
        self.in_channels = self._channels_of(input)
        if lazy:
            with no_grad():
                self.weight.materialize(self._weight_shape())
                if self.bias is not None:
                    self.bias.materialize((self.out_channels,))
                self.reset_parameters()

    def _channels_of(self, input: Tensor) -> int:
        """Return the number of channels of ``input``, or raise if the convolution does not accept it."""
        rank = self.rank
        if len(input.shape) not in (rank + 1, rank + 2):
            raise ModuleError(
                f"Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {input.shape}"
            )
        channels: int = input.shape[-rank - 1]
        if channels % self.groups:
            raise ModuleValueError(f"in_channels must be divisible by groups: {channels} and {self.groups}")
        return channels


class _LazyConv(_LazyChannels):
    def __init__(
        self, out_channels: int, kernel_size: PerAxis, stride: PerAxis = 1, padding: PerAxis | str = 0,
        dilation: PerAxis = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros",
        device: DeviceLike = None, dtype: dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self._defer_parameters(out_channels, bias, device, dtype)


class LazyConv1d(_LazyConv, Conv1d):
    """``Conv1d`` with ``in_channels`` taken from the first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """``Conv2d`` with ``in_channels`` taken from the first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """``Conv3d`` with ``in_channels`` taken from the first input."""

    cls_to_become = Conv3d


class _LazyConvTranspose(_LazyChannels, _ConvTransposeNd):
    def __init__(
        self, out_channels: int, kernel_size: PerAxis, stride: PerAxis = 1, padding: PerAxis = 0,
        output_padding: PerAxis = 0, groups: int = 1, bias: bool = True, dilation: PerAxis = 1,
        padding_mode: str = "zeros", device: DeviceLike = None, dtype: dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode
        )
        self._defer_parameters(out_channels, bias, device, dtype)


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """``ConvTranspose1d`` with ``in_channels`` taken from the first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """``ConvTranspose2d`` with ``in_channels`` taken from the first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """``ConvTranspose3d`` with ``in_channels`` taken from the first input."""

    cls_to_become = ConvTranspose3d


class _LazyNorm(LazyModuleMixin, _NormBase):
    """Base class of lazy batch and instance normalisations."""

    #: Names of the parameters and buffers of shape ``[num_features]``.
    _per_feature: ClassVar[tuple[str, ...]] = ("weight", "bias", "running_mean", "running_var")

    def __init__(
        self, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: DeviceLike = None, dtype: dtype | None = None, *,
        bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(0, eps, momentum, False, False)
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = tensor(0, dtype=dtypes.int64, device=device)

    def reset_parameters(self) -> None:
        """Initialise as the normalisation does; do nothing while the number of features is unknown."""
        if self.num_features != 0 and not self.has_uninitialized_params():
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Take ``num_features`` from ``input``; keep values that came from a state dict."""
        lazy = self.has_uninitialized_params()
        self.num_features = input.shape[1]
        if lazy:
            for member in (getattr(self, name) for name in self._per_feature):
                if member is not None:
                    member.materialize((self.num_features,))
            self.reset_parameters()


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """``BatchNorm1d`` with ``num_features`` taken from the first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """``BatchNorm2d`` with ``num_features`` taken from the first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """``BatchNorm3d`` with ``num_features`` taken from the first input."""

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """``InstanceNorm1d`` with ``num_features`` taken from the first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """``InstanceNorm2d`` with ``num_features`` taken from the first input."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """``InstanceNorm3d`` with ``num_features`` taken from the first input."""

    cls_to_become = InstanceNorm3d
