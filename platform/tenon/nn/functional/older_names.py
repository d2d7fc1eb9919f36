"""Layers under torch's older function names, whose parameters are not those of ``nn.functional``.

``torch.dropout(input, p, train)``, ``torch.embedding(weight, indices)``, ``torch.batch_norm`` with the weight
before the statistics: what scripts and exported programs call.
"""

from __future__ import annotations

from typing import Any

from tenon.core.grad_mode import no_grad
from tenon.functions.contraction import var_mean
from tenon.nn import functional as F

__all__ = [
    "alpha_dropout",
    "batch_norm",
    "batch_norm_update_stats",
    "celu_",
    "channel_shuffle",
    "dropout",
    "dropout_",
    "embedding",
    "feature_alpha_dropout",
    "feature_dropout",
    "hardshrink",
    "instance_norm",
    "native_channel_shuffle",
    "pixel_shuffle",
    "pixel_unshuffle",
    "selu_",
    "threshold_",
]  # fmt: skip

channel_shuffle, pixel_shuffle, pixel_unshuffle = F.channel_shuffle, F.pixel_shuffle, F.pixel_unshuffle
native_channel_shuffle = F.native_channel_shuffle
celu_, selu_, threshold_, hardshrink = F.celu_, F.selu_, F.threshold_, F.hardshrink


def dropout(input: Any, p: float, train: bool) -> Any:
    """Zero elements with probability ``p`` and scale the others, if ``train``."""
    return F.dropout(input, p, train)


def dropout_(input: Any, p: float, train: bool) -> Any:
    """``dropout`` written into ``input``."""
    return F.dropout(input, p, train, inplace=True)


def alpha_dropout(input: Any, p: float, train: bool) -> Any:
    """Dropout that keeps mean and variance of SELU's outputs, if ``train``."""
    return F.alpha_dropout(input, p, train)


def feature_dropout(input: Any, p: float, train: bool) -> Any:
    """Zero whole channels of ``[N, C, ...]``, if ``train``."""
    return F.dropout2d(input, p, train) if input.raw.ndim == 4 else F.dropout3d(input, p, train)


def feature_alpha_dropout(input: Any, p: float, train: bool) -> Any:
    """``alpha_dropout`` of whole channels, if ``train``."""
    return F.feature_alpha_dropout(input, p, train)


def embedding(
    weight: Any,
    indices: Any,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Rows of ``weight`` at ``indices``; the row ``padding_idx`` has no gradient."""
    return F.embedding(
        indices,
        weight,
        padding_idx if padding_idx >= 0 else None,
        scale_grad_by_freq=scale_grad_by_freq,
        sparse=sparse,
    )


def batch_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    """Channels of ``[N, C, ...]`` normalised over the batch, or by the running statistics."""
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def batch_norm_update_stats(
    input: Any, running_mean: Any, running_var: Any, momentum: float
) -> tuple[Any, Any]:
    """Mean and biased variance of each channel of ``[N, C, ...]``, which move the running statistics."""
    others = [axis for axis in range(input.raw.ndim) if axis != 1]
    with no_grad():
        variance, mean = var_mean(input, others, correction=0)
        unbiased = input.var(others, correction=1)
        for running, now in ((running_mean, mean), (running_var, unbiased)):
            if running is not None:
                running.lerp_(now.to(running.dtype), momentum)
    return mean, variance


def instance_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    """Channels of every sample of ``[N, C, ...]`` normalised on their own."""
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)
