"""Normalisation layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from tenon import dtypes
from tenon.errors import ModuleValueError
from tenon.nn import functional as F
from tenon.nn import init
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.tensors.creation.create import tensor
from tenon.tensors.creation.factories import empty, ones, zeros

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import dtype
    from tenon.nn.state import Metadata, StateDict
    from tenon.tensors.tensor import Tensor

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "LayerNorm", "RMSNorm"]


class _Affine(Module):
    """Base class of normalisations with a learned scale and shift."""

    weight: Tensor | None
    bias: Tensor | None

    def _add_affine(
        self, shape: int | Sequence[int], weight: bool, bias: bool, device: DeviceLike, dtype: dtype | None
    ) -> None:
        """Register ``weight`` and ``bias`` of ``shape``: None where the flag of that name is False."""
        for name, is_learned in (("weight", weight), ("bias", bias)):
            parameter = Parameter(empty(shape, device=device, dtype=dtype)) if is_learned else None
            self.register_parameter(name, parameter)

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


class _NormBase(_Affine):
    """Base class of batch and instance normalisations: running statistics and parameters per channel."""

    _version = 2
    __constants__ = ("track_running_stats", "momentum", "eps", "num_features", "affine")
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: DeviceLike = None, dtype: dtype | None = None, *,
        bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self._add_affine(num_features, affine, affine and bias, device, dtype)
        if track_running_stats:
            self.register_buffer("running_mean", zeros(num_features, device=device, dtype=dtype))
            self.register_buffer("running_var", ones(num_features, device=device, dtype=dtype))
            self.register_buffer("num_batches_tracked", zeros((), device=device, dtype=dtypes.int64))
        else:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Mean 0, variance 1, no batches seen."""
        if self.track_running_stats:
            statistics = ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0))
            for buffer, value in statistics:
                if buffer is not None:
                    buffer.fill_(value)

    def reset_parameters(self) -> None:
        """Weight 1, bias 0, and fresh running statistics."""
        self.reset_running_stats()
        super().reset_parameters()

    def extra_repr(self) -> str:
        """Channels and settings."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(
        self, state_dict: StateDict, prefix: str, local_metadata: Metadata, strict: bool,
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        version = local_metadata.get("version")
        key = f"{prefix}num_batches_tracked"
        # Version 1 of the layer had no num_batches_tracked.
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            buffer = self.num_batches_tracked
            state_dict[key] = (
                buffer
                if buffer is not None and buffer.device.type != "meta"
                else tensor(0, dtype=dtypes.int64)
            )
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class _BatchNorm(_NormBase):
    """Base class of batch normalisations; ``ranks`` are the numbers of axes that the input may have."""

    ranks: ClassVar[tuple[int, ...]]

    def _check_input_dim(self, input: Tensor) -> None:
        if input.raw.ndim not in self.ranks:
            expected = " or ".join(f"{r}D" for r in self.ranks)
            raise ModuleValueError(f"expected {expected} input (got {input.raw.ndim}D input)")

    def forward(self, input: Tensor) -> Tensor:
        """The normalised input; in training the running statistics follow the batch."""
        self._check_input_dim(input)
        running_mean, running_var, by_batch, momentum = self._start_batch()
        return F.batch_norm(
            input, running_mean, running_var, self.weight, self.bias, by_batch, momentum, self.eps
        )

    def _start_batch(self) -> tuple[Tensor | None, Tensor | None, bool, float]:
        """Count the batch, and return running mean and variance, whether to normalise by the batch's
        statistics instead, and the momentum of the update."""
        training, track = self.training, self.track_running_stats
        momentum = 0.0 if self.momentum is None else self.momentum
        if training and track and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)  # the mean over all batches
        by_batch = training or (self.running_mean is None and self.running_var is None)
        use = not training or track
        return self.running_mean if use else None, self.running_var if use else None, by_batch, momentum


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of ``[N, C]`` or ``[N, C, L]``."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of ``[N, C, H, W]``."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of ``[N, C, D, H, W]``."""

    ranks = (5,)


def _sizes(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return ``normalized_shape`` as a tuple."""
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


class LayerNorm(_Affine):
    """Standardises the last axes, ``normalized_shape``, of each sample; learned scale and shift per
    element."""

    __constants__ = ("normalized_shape", "eps", "elementwise_affine")

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, device: DeviceLike = None, dtype: dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = _sizes(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        has_bias = elementwise_affine and bias
        self._add_affine(self.normalized_shape, elementwise_affine, has_bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        """The normalised input."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Shape and settings."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divides the last axes by the root of their mean square; learned scale per element."""

    __constants__ = ("normalized_shape", "eps", "elementwise_affine")
    weight: Tensor | None

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None,
        elementwise_affine: bool = True, device: DeviceLike = None, dtype: dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = _sizes(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        shape = self.normalized_shape
        weight = Parameter(empty(shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", weight)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """The normalised input."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Shape and settings."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Affine):
    """Standardises each of ``num_groups`` groups of channels of each sample; learned scale and shift per
    channel."""

    __constants__ = ("num_groups", "num_channels", "eps", "affine")

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
        device: DeviceLike = None, dtype: dtype | None = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if num_channels % num_groups:
            raise ModuleValueError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self._add_affine(num_channels, affine, affine and bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        """The normalised input."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Groups and settings."""
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine},"
            f" bias={self.bias is not None}"
        )
