"""Batch, instance, layer, RMS and group normalisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

import tenon.ops  # noqa: F401 - fills the op table
from tenon.autograd import forward_ad
from tenon.compat.node_names import titled
from tenon.dtypes import FROM_NUMPY, scalar_name
from tenon.engine.op import table as f
from tenon.errors import DTypeError, GradError, ModuleValueError, ShapeError, UnsupportedDTypeError
from tenon.ops.dtype_queries import is_short, matching, widened
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.memory_formats import like, with_gradient_in_format
from tenon.tensors.precision import runs_in

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

_VECTORS = ("running_mean", "running_var", "weight", "bias")


def _need_floats(name: str, input: Tensor, kinds: str = "fV") -> None:
    """Raise UnsupportedDTypeError unless ``input`` is of floats: normalised integers would be truncated."""
    if input.raw.dtype.kind not in kinds:
        kind = scalar_name(FROM_NUMPY[input.raw.dtype])
        raise UnsupportedDTypeError(f"\"{name}\" not implemented for '{kind}'. Use .float().")


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """``input[N, C, ...]`` standardised per channel, by the batch (``training``) or by the running
    statistics.

    In training the running statistics, where given, move towards the batch's by ``momentum``, in place.
    """
    shape = input.raw.shape
    if training and len(shape) > 1 and math.prod(shape) == shape[1] and shape[0] == 1:
        raise ModuleValueError(
            f"Expected more than 1 value per channel when training, got input size torch.Size({list(shape)})"
        )
    if eps < 0 or (training and eps == 0):
        expected = "positive during training" if training else "non-negative"
        raise ModuleValueError(f"batch_norm eps must be {expected}, but got {eps}")
    return _channel_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def _channel_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    """Return batch norm with any ``eps``: instance norm allows zero, batch norm does not."""
    shape = input.raw.shape
    channels = shape[1] if len(shape) > 1 else 0
    _need_floats("batch_norm", input)
    for name, value in zip(_VECTORS, (running_mean, running_var, weight, bias), strict=True):
        if value is not None and value.raw.shape != (channels,):
            raise ShapeError(f"{name} should contain {channels} elements not {value.raw.size}")
        if value is not None and value.raw.dtype.kind not in "fV":
            raise DTypeError(
                f"mixed dtype: {name} should be of a float dtype, as the input is; got {value.dtype}."
                f" Use {name}.float()."
            )
    if len(shape) < 2 and not math.prod(shape):
        return input.clone()
    if not training:
        if running_mean is None or running_var is None:
            raise ModuleValueError("Expected running_mean and running_var to be defined when training=False")
        if running_mean._track or running_var._track:
            _refuse_tangents(input, running_mean, running_var)
        return f.batch_norm_inference(input, weight, bias, running_mean, running_var, eps=float(eps))
    out, mean, variance = f.batch_norm(input, weight, bias, eps=float(eps))
    if math.prod(shape) and (running_mean is not None or running_var is not None):
        count = math.prod(shape) // max(channels, 1)
        with no_grad():
            if running_mean is not None:
                running_mean.mul_(1.0 - momentum).add_(mean.detach(), alpha=momentum)
            if running_var is not None:
                unbiased = momentum * count / (count - 1) if count > 1 else float("nan")
                running_var.mul_(1.0 - momentum).add_(variance.detach(), alpha=unbiased)
    return out


def _refuse_tangents(input: Tensor, *statistics: Tensor) -> None:
    """Raise GradError if ``input`` and a running statistic carry tangents: PyTorch has no rule for it."""
    if not forward_ad.is_active() or forward_ad.unpack_dual(input).tangent is None:
        return
    if any(forward_ad.unpack_dual(statistic).tangent is not None for statistic in statistics):
        raise GradError("batch_norm is not differentiable wrt running_mean and running_var")


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """``input[N, C, ...]`` standardised per channel of each sample, or by the running statistics.

    With ``use_input_stats`` the running statistics, where given, move towards the samples' mean by
    ``momentum``, in place.
    """
    shape = tuple(input.raw.shape)
    if len(shape) < 2:
        raise ShapeError(f"instance_norm: input should have at least 2 dimensions, [N, C], got {list(shape)}")
    batch, channels = shape[:2]
    if not use_input_stats:
        return _channel_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if math.prod(shape[2:]) == 1:
        raise ModuleValueError(
            f"Expected more than 1 spatial element when training, got input size torch.Size({list(shape)})"
        )
    _need_floats("instance_norm", input)
    if running_mean is running_var is None:
        # Normalising rows of a matrix is faster than channels of one sample (0.4 instead of 0.8 ms).
        planes = input.reshape(batch * channels, math.prod(shape[2:]))
        result = f.layer_norm(planes, None, None, rank=1, eps=float(eps)).reshape(shape)
        return result if weight is bias is None else f.channel_affine(result, weight, bias)
    weight, bias = (v if v is None else v.repeat(batch) for v in (weight, bias))
    rows = input.reshape(1, batch * channels, *shape[2:])
    mean, var = (v if v is None else v.detach().repeat(batch) for v in (running_mean, running_var))
    result = _channel_norm(rows, mean, var, weight, bias, True, momentum, eps)
    with no_grad():
        for statistic, updated in ((running_mean, mean), (running_var, var)):
            if statistic is not None and updated is not None:
                statistic.copy_(updated.reshape(batch, channels).mean(0))
    return result.reshape(shape)


def layer_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """``input`` standardised over its last axes, which must be ``normalized_shape``."""
    sizes = tuple(normalized_shape) if isinstance(normalized_shape, (list, tuple)) else (normalized_shape,)
    rank, shape = len(sizes), tuple(input.raw.shape)
    if not rank:
        raise ShapeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element,"
            " but got normalized_shape = []"
        )
    if shape[len(shape) - rank :] != sizes or len(shape) < rank:
        pattern = ", ".join(["*", *map(str, sizes)])
        raise ShapeError(
            f"Given normalized_shape={list(sizes)}, expected input with shape [{pattern}], but got input of"
            f" size{list(shape)}"
        )
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and tuple(value.raw.shape) != sizes:
            raise ShapeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                f"{list(value.raw.shape)} and normalized_shape = {list(sizes)}"
            )
    _need_floats("layer_norm", input)
    return f.layer_norm(input, weight, bias, rank=rank, eps=float(eps))


@runs_in("usual", cuda="float32")
def rms_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """``input`` over the root of its mean square along its last axes, times ``weight``."""
    sizes = tuple(normalized_shape) if isinstance(normalized_shape, (list, tuple)) else (normalized_shape,)
    shape = tuple(input.raw.shape)
    if not sizes:
        raise ShapeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element,"
            " but got normalized_shape = []"
        )
    if shape[len(shape) - len(sizes) :] != sizes:
        raise ShapeError(
            f"Given normalized_shape={list(sizes)}, expected input with shape [*,"
            f" {', '.join(map(str, sizes))}], but got input of size{list(shape)}"
        )
    x = with_gradient_in_format(input)
    if x is not input and weight is not None:
        weight = f.ordered(weight)
    wide = f.cast(x, dtype=np.float32) if is_short(x) else x
    _need_floats("rms_norm", wide, "fc")
    eps = float(np.finfo(wide.raw.dtype).eps) if eps is None else eps
    axes = tuple(range(len(shape) - len(sizes), len(shape)))
    result = wide * f.rsqrt(f.add(f.mean(f.square(wide), axes=axes, keepdims=True), eps))
    result = like(result if weight is None else result * weight, input)
    return f.cast(result, dtype=input.raw.dtype) if wide is not x else result


@titled("NativeGroupNorm0")
@runs_in("usual", cuda="float32")
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """``input[N, C, ...]`` standardised over each of ``num_groups`` groups of channels of each sample."""
    shape = tuple(input.raw.shape)
    if len(shape) < 2 or shape[1] % num_groups:
        raise ShapeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of shape"
            f" {list(shape)} and num_groups={num_groups}"
        )
    if shape[0] * shape[1] // num_groups * math.prod(shape[2:]) == 1:
        raise ModuleValueError(
            f"Expected more than 1 value per channel when training, got input size torch.Size({list(shape)}):"
            " one value has no spread to divide by."
        )
    _need_floats("group_norm", input)
    x = with_gradient_in_format(input)
    if is_short(x):  # computed in float32 and rounded once, as in PyTorch
        x, weight, bias = widened(f, x, weight, bias)
    grouped = x.reshape(shape[0], num_groups, math.prod(shape[1:]) // num_groups)
    result = f.layer_norm(grouped, None, None, rank=1, eps=float(eps)).reshape(shape)
    result = result if weight is bias is None else f.channel_affine(result, weight, bias)
    return like(matching(f, result, input), input)
