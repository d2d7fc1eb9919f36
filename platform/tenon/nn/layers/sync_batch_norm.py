"""Batch normalisation over the batches of all ranks, on every device.

Each rank sends the mean and the sum of squared deviations of each channel, and the number of its values;
these are combined exactly (Chan et al., 1979), so batches may differ in size, or be empty. Backward sends two
sums per channel. Gradients of weight and bias are those of this rank; data parallel averages them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tenon.autograd.function import Function, once_differentiable
from tenon.distributed.communication.staging import to_host
from tenon.distributed.communication.world import get_communicator
from tenon.engine.op import table as f
from tenon.engine.watchers import WATCHERS
from tenon.errors import ModuleValueError
from tenon.nn.layers.norm import _BatchNorm
from tenon.nn.module import Module
from tenon.tensors.creation.create import wrap

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.distributed.communication.communicator import Communicator
    from tenon.dtypes import dtype
    from tenon.tensors.tensor import Tensor

__all__ = ["SyncBatchNorm"]


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation of ``[N, C, ...]``, in training by the statistics over the batches of all ranks.

    ``process_group`` has the ranks to normalise over, by default all. In ``eval()``, and on one rank, it is
    plain batch normalisation.
    """

    ranks: ClassVar[tuple[int, ...]] = ()

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, process_group: Communicator | None = None,
        device: DeviceLike = None, dtype: dtype | None = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.raw.ndim < 2:
            raise ModuleValueError(f"expected at least 2D input (got {input.raw.ndim}D input)")
        if input.raw.shape[1] == 0:
            raise ModuleValueError("SyncBatchNorm number of input channels should be non-zero")

    def forward(self, input: Tensor) -> Tensor:
        """The normalised input; in training the running statistics follow the batch of all ranks."""
        group = get_communicator() if self.process_group is None else self.process_group
        if not self.training or group.size == 1:
            return super().forward(input)
        self._check_input_dim(input)
        running_mean, running_var, _, momentum = self._start_batch()
        return _Normalise.apply(
            input, self.weight, self.bias, running_mean, running_var, momentum, self.eps, group
        )

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Communicator | None = None) -> Module:
        """Replace every batch normalisation in ``module`` by a synchronous one with the same parameters and
        buffers, and return the result."""
        result = module
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            synchronous = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
                bias=module.bias is not None,
            )
            for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked", "training"):
                setattr(synchronous, name, getattr(module, name))
            result = synchronous
        for name, child in list(module.named_children()):
            result.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return result


class _Normalise(Function):
    """The normalisation and its gradient, with one exchange between ranks in each."""

    @staticmethod
    def forward(
        ctx: Any,  # a FunctionCtx with the attribute ``group``
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        momentum: float,
        eps: float,
        group: Communicator,
    ) -> Tensor:
        shape = tuple(input.raw.shape)
        count = math.prod(shape) // shape[1]
        axes = tuple(axis for axis in range(len(shape)) if axis != 1)
        wide = input.float() if input.dtype.itemsize < 4 else input
        if count:
            mean = wide.mean(axes)
            spread = (wide - _along_channels(mean, wide)).square_().sum(axes)
        else:
            mean = spread = wide.new_zeros(shape[1])

        def combine(mean: np.ndarray, spread: np.ndarray) -> list[np.ndarray]:
            message = np.concatenate([mean, spread, [count]]).astype(np.float64)
            by_rank = group.all_gather(message, name="statistics of SyncBatchNorm").wait()
            means, spreads = by_rank[:, : mean.size], by_rank[:, mean.size : -1]
            counts = by_rank[:, -1:]
            total = counts.sum()
            if total == 0:
                raise ModuleValueError("SyncBatchNorm: the batches of all ranks are empty. Skip this step.")
            total_mean = (counts * means).sum(0) / total
            squares = (spreads + counts * (means - total_mean) ** 2).sum(0)
            unbiased = squares / (total - 1) if total > 1 else np.full_like(squares, np.nan)
            statistics = (total_mean, squares / total, unbiased, np.full_like(total_mean, 1 / total))
            return [statistic.astype(mean.dtype) for statistic in statistics]

        mean, variance, unbiased, inverse_count = _on_host(combine, [mean, spread])
        out = f.batch_norm_inference(input, weight, bias, mean, variance, eps=float(eps))
        if running_mean is not None:
            running_mean.mul_(1.0 - momentum).add_(mean.to(running_mean.dtype), alpha=momentum)
        if running_var is not None:
            running_var.mul_(1.0 - momentum).add_(unbiased.to(running_var.dtype), alpha=momentum)
        ctx.save_for_backward(input, weight, mean, (variance + eps).rsqrt(), inverse_count)
        ctx.group = group
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # the context of ``forward``
        input, weight, mean, inverse_std, inverse_count = ctx.saved_tensors
        needs_input, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        wide, g = input.to(mean.dtype), grad.to(mean.dtype)
        axes = tuple(axis for axis in range(wide.dim()) if axis != 1)
        centered = wide - _along_channels(mean, wide)
        sum_g = g.sum(axes)
        sum_gx = (g * centered).sum(axes)
        grad_input = None
        if needs_input:
            total_g, total_gx = _on_host(_Sum(ctx.group), [sum_g, sum_gx])
            scale = inverse_std if weight is None else inverse_std * weight.to(mean.dtype)
            slope = total_gx * inverse_count * inverse_std.square()
            # scale * (g - total_g / n - centered * slope), in the memory of ``centered``
            centered.mul_(_along_channels(-slope, g)).add_(g)
            centered.sub_(_along_channels(total_g * inverse_count, g)).mul_(_along_channels(scale, g))
            grad_input = centered.to(input.dtype)
        grad_weight = (sum_gx * inverse_std).to(weight.dtype) if needs_weight else None
        grad_bias = sum_g.to(weight.dtype if weight is not None else input.dtype) if needs_bias else None
        return grad_input, grad_weight, grad_bias, None, None, None, None, None


class _Sum:
    """The sums of two arrays over the ranks of ``group``, in one message."""

    def __init__(self, group: Communicator) -> None:
        self.group = group

    def __call__(self, first: np.ndarray, second: np.ndarray) -> list[np.ndarray]:
        message = np.stack([first, second]).astype(np.float64)
        sums = self.group.all_reduce(message, name="sums of SyncBatchNorm").wait()
        return [sums[0].astype(first.dtype), sums[1].astype(first.dtype)]


def _along_channels(values: Tensor, like: Tensor) -> Tensor:
    """``values[C]`` shaped to broadcast with ``like[N, C, ...]``."""
    return values.reshape(1, -1, *[1] * (like.dim() - 2))


def _on_host(function: Callable[..., list[np.ndarray]], tensors: list[Tensor]) -> list[Tensor]:
    """Call ``function`` with the values of ``tensors`` as NumPy arrays; return its arrays on their device.

    A compiled program calls it in every run.
    """
    if WATCHERS.recorder is not None and WATCHERS.recorder.listening():
        return list(WATCHERS.recorder.host_map(function, tensors))
    arrays = function(*[np.asarray(to_host(tensor)) for tensor in tensors])
    return [wrap(array, tensors[0].device) for array in arrays]
