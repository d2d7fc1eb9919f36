"""Losses: ``F.cross_entropy``, ``F.mse_loss`` and others. ``reduction`` is "none", "mean" or "sum"."""

from __future__ import annotations

import warnings
from operator import index
from typing import TYPE_CHECKING

import tenon.ops  # noqa: F401 - fills the op table
from tenon.engine.op import table as f
from tenon.engine.watchers import WATCHERS
from tenon.errors import DTypeError, ModuleValueError, ShapeError, TenonWarning
from tenon.kernels.shapes import broadcast_shapes
from tenon.nn.functional.arguments import reduction_of, refuse_integers, without_gradient
from tenon.ops.composite.classification import class_axis
from tenon.ops.composite.loss import reduced
from tenon.ops.dtype_queries import title_of
from tenon.tensors.index_parsing import INDEX
from tenon.tensors.precision import runs_in
from tenon.tensors.wrong_arguments import only_tensors

if TYPE_CHECKING:
    from tenon.engine.op import Op
    from tenon.tensors.tensor import Tensor


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``-weight[target] * input[target]`` for log-probabilities ``input[N, C, ...]`` and class indices."""
    mode = reduction_of(size_average, reduce, reduction)
    if weight is not None:
        without_gradient("nll_loss_forward", weight=weight)
    return f.nll_loss(input, target, weight, reduction=mode, ignore_index=index(ignore_index))


@runs_in("float32")
def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """Cross entropy of scores ``input[N, C, ...]`` with class indices, or with probabilities of ``input``'s
    shape."""
    mode = reduction_of(size_average, reduce, reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ModuleValueError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if tuple(input.raw.shape) == tuple(target.raw.shape):
        if target.raw.dtype.kind not in "fV":
            raise DTypeError(
                "Expected floating point type for target with class probabilities, got"
                f" {title_of(target.raw)}: its shape {list(target.raw.shape)} is the input's. Convert it with"
                " target.float(), or give class indices, without the axis of classes."
            )
        return _soft_cross_entropy(input, target, weight, ignore_index, mode, label_smoothing)
    if weight is not None:
        without_gradient("nll_loss_forward", weight=weight)
    if label_smoothing == 0.0:
        return f.cross_entropy(input, target, weight, reduction=mode, ignore_index=index(ignore_index))
    return _smoothed(input, target, weight, index(ignore_index), mode, label_smoothing)


def _per_class(weight: Tensor, x: Tensor) -> Tensor:
    """``weight`` shaped to multiply the class axis of ``x``."""
    if tuple(weight.raw.shape) != (x.raw.shape[class_axis(x.raw)],):
        raise ShapeError(
            f"cross_entropy: weight tensor should be defined either for all {x.raw.shape[class_axis(x.raw)]}"
            f" classes or no classes but got weight tensor of shape: {list(weight.raw.shape)}"
        )
    return weight.reshape((-1, *(1,) * (x.raw.ndim - 1 - class_axis(x.raw))))


def _soft_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, mode: str, smoothing: float
) -> Tensor:
    """Return the cross entropy with class probabilities ``target``."""
    if ignore_index >= 0:
        raise ModuleValueError(
            f"ignore_index is not supported for floating point target (got {ignore_index}). Give class"
            " indices instead."
        )
    axis = class_axis(x.raw)
    classes = x.raw.shape[axis]
    if smoothing:
        target = target * (1.0 - smoothing) + smoothing / classes
    terms = f.log_softmax(x, axis=axis) * target
    if weight is not None:
        terms = terms * _per_class(weight, x)
    if mode == "none":
        return -terms.sum(axis)
    total = -terms.sum()
    return total / (x.raw.size / classes if x.raw.size else float("nan")) if mode == "mean" else total


def _smoothed(
    x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, mode: str, smoothing: float
) -> Tensor:
    """Return the cross entropy with class indices ``target`` and label smoothing.

    A target has probability ``1 - smoothing``; the rest is spread evenly over all classes.
    """
    axis = class_axis(x.raw)
    log_probs = f.log_softmax(x, axis=axis)
    hard_loss = f.nll_loss(log_probs, target, weight, reduction=mode, ignore_index=ignore_index)
    terms = log_probs if weight is None else log_probs * _per_class(weight, x)
    present = f.ne(target, ignore_index)
    spread = f.where(present, -terms.sum(axis), 0.0)
    if mode != "none":
        spread = spread.sum()
    if mode == "mean":
        ones = f.cast(present, dtype=x.raw.dtype)
        if weight is not None:
            ones = f.mul(ones, f.take(weight, f.where(present, target, 0), layout=(INDEX,)))
        spread = spread / ones.sum()
    return hard_loss * (1.0 - smoothing) + spread * (smoothing / x.raw.shape[axis])


def _warn_of_broadcast(name: str, input: Tensor, target: Tensor, stacklevel: int = 3) -> None:
    """Warn, as PyTorch does, that the two shapes differ."""
    warnings.warn(
        f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). This"
        " will likely lead to incorrect results due to broadcasting. Please ensure they have the same"
        f" size. ({name})",
        TenonWarning,
        stacklevel=stacklevel,
    )


def _broadcast(name: str, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Warn that the two shapes differ; return both in their common shape, whose rank decides the dtype."""
    _warn_of_broadcast(name, input, target, stacklevel=4)
    shape = broadcast_shapes(tuple(input.raw.shape), tuple(target.raw.shape))
    return input.expand(shape), target.expand(shape)


def extent(x: Tensor) -> tuple[float, float]:
    """Return minimum and maximum of ``x``; zeros if ``x`` is empty or on meta, or while a graph is
    recorded."""
    if not x.raw.size or x.device.type == "meta" or WATCHERS.recorder is not None:
        return 0.0, 0.0
    return float(x.detach().amin()), float(x.detach().amax())


def _elementwise(
    op: Op, input: Tensor, target: Tensor, weight: Tensor | None, mode: str, by_weight: bool = True,
    **attrs: float,
) -> Tensor:  # fmt: skip
    """Return the loss ``op``, reduced by ``mode``, of elements that ``weight`` weighs.

    The mean divides by the sum of the weights, or by their number without ``by_weight``.
    """
    if weight is None:
        return op(input, target, reduction=mode, **attrs)
    losses = op(input, target, reduction="none", **attrs)
    if tuple(weight.raw.shape) != tuple(losses.raw.shape):
        raise ShapeError(
            f"Weights and input must have the same size: {list(weight.raw.shape)} and"
            f" {list(losses.raw.shape)}."
        )
    weighted = losses * weight
    if mode == "mean" and by_weight:
        return weighted.sum() / weight.sum()
    return reduced(f, weighted, mode)


def _refuse_two_of_integers(name: str, input: Tensor, target: Tensor) -> None:
    """Raise UnsupportedDTypeError for two tensors of integers, whose differences would wrap around."""
    if target.raw.dtype.kind in "biu":
        refuse_integers(input, name)


def mse_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Squared differences."""
    if input.raw.shape != target.raw.shape:
        input, target = _broadcast("mse_loss", input, target)
    _refuse_two_of_integers("mse_loss", input, target)
    mode = reduction_of(size_average, reduce, reduction)
    return _elementwise(f.mse_loss, input, target, weight, mode)


def l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Absolute differences."""
    if input.raw.shape != target.raw.shape:
        input, target = _broadcast("l1_loss", input, target)
    mode = reduction_of(size_average, reduce, reduction)
    if weight is None and input.raw.dtype.kind in "biu" and target.raw.dtype.kind in "biu":
        losses = (input - target).abs()
        return losses if mode == "none" else losses.sum() if mode == "sum" else losses.mean()
    return _elementwise(f.l1_loss, input, target, weight, mode)


def smooth_l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", beta: float = 1.0,
) -> Tensor:  # fmt: skip
    """Squared differences within ``beta``, absolute ones beyond; ``beta=0`` is the L1 loss."""
    if input.raw.shape != target.raw.shape:
        input, target = _broadcast("smooth_l1_loss", input, target)
    _refuse_two_of_integers("smooth_l1_loss", input, target)
    mode = reduction_of(size_average, reduce, reduction)
    if not beta >= 0:
        raise ModuleValueError(f"smooth_l1_loss does not support negative values for beta. (got {beta})")
    if beta == 0:
        return f.l1_loss(input, target, reduction=mode)
    return f.smooth_l1_loss(input, target, reduction=mode, beta=float(beta))


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """Half squared differences within ``delta``, linear ones beyond."""
    if input.raw.shape != target.raw.shape:
        _warn_of_broadcast("huber_loss", input, target)
    _refuse_two_of_integers("huber_loss", input, target)
    mode = reduction_of(None, None, reduction)
    if not delta > 0:
        raise ModuleValueError(f"huber_loss does not support non-positive values for delta. (got {delta})")
    return _elementwise(f.huber_loss, input, target, weight, mode, by_weight=False, delta=float(delta))


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean", pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Binary cross entropy of the sigmoid of ``input``; ``pos_weight`` weighs the positive targets."""
    mode = reduction_of(size_average, reduce, reduction)
    if input.raw.shape != target.raw.shape:
        raise ModuleValueError(f"Target size ({target.shape}) must be the same as input size ({input.shape})")
    without_gradient("binary_cross_entropy_with_logits", weight=weight, pos_weight=pos_weight)
    return f.binary_cross_entropy_with_logits(input, target, weight, pos_weight, reduction=mode)


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Binary cross entropy of probabilities."""
    mode = reduction_of(size_average, reduce, reduction)
    if input.raw.shape != target.raw.shape:
        raise ModuleValueError(
            f"Using a target size ({target.shape}) that is different to the input size ({input.shape}) is"
            " deprecated. Please ensure they have the same size."
        )
    low, high = extent(input)
    if not (low >= 0 and high <= 1):
        raise ModuleValueError(
            f"all elements of input should be between 0 and 1, but they reach from {low:.6g} to"
            f" {high:.6g}. Apply a sigmoid first, or use binary_cross_entropy_with_logits."
        )
    if weight is not None:
        without_gradient("binary_cross_entropy", weight=weight)
        weight = weight.expand(input.raw.shape)
    return f.binary_cross_entropy(input, target, weight, reduction=mode)


@runs_in("float32")
def kl_div(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", log_target: bool = False,
) -> Tensor:  # fmt: skip
    """``target * (log(target) - input)`` for log-probabilities ``input``; "batchmean" divides by the batch
    size."""
    only_tensors(input, target)
    _refuse_two_of_integers("kl_div", input, target)
    if reduction == "batchmean" and size_average is None and reduce is None:
        mode = "sum"
    else:
        mode = reduction_of(size_average, reduce, reduction)
        if mode == "mean":
            warnings.warn(
                "reduction: 'mean' divides the total loss by both the batch size and the support"
                " size.'batchmean' divides only by the batch size, and aligns with the KL div math"
                " definition.'mean' will be changed to behave the same as 'batchmean' in the next major"
                " release.",
                TenonWarning,
                stacklevel=2,
            )
    if log_target:
        losses = f.mul(f.exp(target), f.sub(target, input))
    else:
        entropy = f.mul(target, f.log(f.where(f.eq(target, 0), 1.0, target)))
        losses = f.sub(entropy, f.mul(target, input))
    result = reduced(f, losses, mode)
    return result / input.raw.shape[0] if reduction == "batchmean" and input.raw.ndim else result
