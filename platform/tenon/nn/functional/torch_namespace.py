"""Layer functions of the ``torch`` namespace, whose signatures differ from ``nn.functional``'s.

``torch.dropout(input, p, train)``, ``torch.embedding(weight, indices)``, ``torch.batch_norm`` with the weight
before the statistics: the forms that scripted and exported programs call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon.compat.rerouting import register
from tenon.errors import ArgumentError, ShapeError
from tenon.functions.contraction import var_mean
from tenon.functions.searching import searchsorted
from tenon.kernels.whole_arrays import beside
from tenon.nn import functional as F
from tenon.nn.functional.dropout import native_dropout
from tenon.nn.functional.embedding import bags_of
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.creation.create import tensor
from tenon.tensors.creation.factories import zeros_like
from tenon.tensors.creation.ranges import arange

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

__all__ = [
    "alpha_dropout",
    "batch_norm",
    "batch_norm_update_stats",
    "celu_",
    "channel_shuffle",
    "dropout",
    "dropout_",
    "embedding",
    "embedding_bag",
    "feature_alpha_dropout",
    "feature_dropout",
    "hardshrink",
    "instance_norm",
    "native_channel_shuffle",
    "native_dropout",
    "pixel_shuffle",
    "pixel_unshuffle",
    "selu_",
    "threshold_",
]  # fmt: skip

channel_shuffle, pixel_shuffle, pixel_unshuffle = F.channel_shuffle, F.pixel_shuffle, F.pixel_unshuffle
native_channel_shuffle = F.native_channel_shuffle
celu_, selu_, threshold_, hardshrink = F.celu_, F.selu_, F.threshold_, F.hardshrink


def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Zero elements with probability ``p`` and scale the others, if ``train``."""
    return F.dropout(input, p, train)


def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """``dropout`` written into ``input``."""
    return F.dropout(input, p, train, inplace=True)


def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Dropout that keeps mean and variance of SELU's outputs, if ``train``."""
    return F.alpha_dropout(input, p, train)


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Zero whole channels of ``[N, C, ...]``, if ``train``."""
    return F.dropout2d(input, p, train) if input.raw.ndim == 4 else F.dropout3d(input, p, train)


def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """``alpha_dropout`` of whole channels, if ``train``."""
    return F.feature_alpha_dropout(input, p, train)


def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of ``weight`` at ``indices``; the row ``padding_idx`` has no gradient."""
    return F.embedding(
        indices,
        weight,
        padding_idx if padding_idx >= 0 else None,
        scale_grad_by_freq=scale_grad_by_freq,
        sparse=sparse,
    )


def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """``F.embedding_bag`` of mode 0 (sum), 1 (mean) or 2 (max), and the three tensors that its backward uses.

    These are the bag of each index, the number of indices counted in each bag, and the row of each maximum,
    which is the number of indices again for other modes. For sums these numbers are 0, as in PyTorch.
    """
    if indices.ndim not in (1, 2):
        raise ShapeError(f"input has to be a 1D or 2D Tensor, but got Tensor of dimension {indices.ndim}")
    for name, argument, rank in (("offsets", offsets, 1), ("weight", weight, 2)):
        if argument.ndim != rank:
            raise ShapeError(
                f"{name} has to be a {rank}D Tensor, but got Tensor of dimension {argument.ndim}"
            )
    if mode not in (0, 1, 2):
        raise ArgumentError(f"embedding_bag: mode has to be 0 (sum), 1 (mean) or 2 (max), got {mode}")
    flat = indices.reshape(-1)
    out = F.embedding_bag(
        flat, weight, offsets, None, 2, scale_grad_by_freq, ("sum", "mean", "max")[mode], sparse,
        per_sample_weights, include_last_offset, padding_idx,
    )  # fmt: skip
    with no_grad():
        _, starts, end = bags_of(flat, offsets, include_last_offset, padding_idx is None and mode != 2)
        sizes = zeros_like(starts).to(indices.dtype)
        positions = beside(flat, arange(flat.numel(), device=flat.device))
        bags = searchsorted(starts, positions, right=True) - 1
        counted = positions < end if padding_idx is None else flat != padding_idx % weight.shape[0]
        if mode != 0:
            sizes = sizes.index_add(0, bags, counted.to(sizes.dtype))
        maxima = _maxima(flat, weight, out, bags, counted) if mode == 2 else sizes.clone()
    return out, bags.to(indices.dtype), sizes, maxima


_embedding_bag, _embedding_bag_forward_only = embedding_bag, embedding_bag


def _maxima(flat: Tensor, weight: Tensor, out: Tensor, bags: Tensor, counted: Tensor) -> Tensor:
    """Return the row of ``weight`` that each maximum comes from, the first of equal ones; 0 for empty
    bags."""
    hits = (weight[flat] == out[bags]) & counted.unsqueeze(1)
    last = flat.numel()
    positions = beside(flat, arange(last, device=flat.device))
    positions = positions.unsqueeze(1).where(hits, tensor(last, device=flat.device))
    first = positions.new_full(out.shape, last)
    first = first.scatter_reduce(0, bags.unsqueeze(1).expand_as(positions), positions, "amin")
    rows = F.pad(flat, (0, 1))
    return rows[first]


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Channels of ``[N, C, ...]`` normalised over the batch, or by the running statistics.

    ``cudnn_enabled`` has no effect.
    """
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def batch_norm_update_stats(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float
) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each channel of ``[N, C, ...]``; updates the running statistics."""
    if not input.raw.size:
        sizes = list(input.raw.shape)
        raise ShapeError(f"input tensor must have at least one element, but got input_sizes = {sizes}")
    others = [axis for axis in range(input.raw.ndim) if axis != 1]
    with no_grad():
        variance, mean = var_mean(input, others, correction=0)
        unbiased = input.var(others, correction=1)
        for running, now in ((running_mean, mean), (running_var, unbiased)):
            if running is not None:
                running.lerp_(now.to(running.dtype), momentum)
    return mean, variance


def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Channels of every sample of ``[N, C, ...]`` normalised on their own.

    ``cudnn_enabled`` has no effect.
    """
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


register("torch", {name: globals()[name] for name in __all__})
