"""Margin losses and losses of distances: ``F.margin_ranking_loss``, ``F.triplet_margin_loss`` and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import tenon.ops  # noqa: F401 - fills the op table
from tenon.compat.node_names import titled
from tenon.engine.op import table as f
from tenon.errors import DTypeError, IndexRangeError, ModuleValueError, ShapeError
from tenon.kernels.whole_arrays import beside
from tenon.nn.functional.arguments import reduction_of, refuse_integers, without_gradient
from tenon.nn.functional.distance import pairwise_distance
from tenon.nn.functional.loss import extent
from tenon.ops.composite.loss import reduced
from tenon.ops.dtype_queries import title_of
from tenon.tensors.creation.ranges import arange
from tenon.tensors.precision import runs_in
from tenon.tensors.wrong_arguments import only_tensors

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

#: ``cosine_embedding_loss`` adds this to squared norms, as PyTorch does.
_EPSILON = 1e-12


@runs_in("float32")
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``input`` where ``target`` is 1, ``max(0, margin - input)`` where it is -1."""
    only_tensors(input, target)
    mode = reduction_of(size_average, reduce, reduction)
    far = f.where(f.ne(target, 1), (margin - input).clamp(min=0), 0.0)
    near = f.where(f.ne(target, -1), input, 0.0)
    return reduced(f, far + near, mode)


@titled("SoftMarginLoss0")
@runs_in("float32")
def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``log(1 + exp(-target * input))``, computed without overflow."""
    only_tensors(input, target)
    mode = reduction_of(size_average, reduce, reduction)
    without_gradient("soft_margin_loss", target=target)
    return reduced(f, -f.logsigmoid(target * input), mode)


@runs_in("float32")
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``max(0, margin - target * (input1 - input2))``: ``target`` 1 wants the first to be larger, -1 the
    second."""
    mode = reduction_of(size_average, reduce, reduction)
    if not input1.ndim == input2.ndim == target.ndim:
        raise ShapeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: input1:"
            f" {input1.shape}, input2: {input2.shape}, target: {target.shape} "
        )
    return reduced(f, (-target * (input1 - input2) + float(margin)).clamp_min(0), mode)


@runs_in("float32")
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``1 - cos`` where ``target`` is 1, ``max(0, cos - margin)`` where it is -1.

    ``input1`` and ``input2``: ``[N, D]`` with ``target[N]``, or ``[D]`` with a scalar.
    """
    mode = reduction_of(size_average, reduce, reduction)
    if target.ndim > 1:
        raise ShapeError("0D or 1D target tensor expected, multi-target not supported")
    if not input1.ndim == input2.ndim == target.ndim + 1:
        raise ShapeError(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found inputs with"
            f" sizes {list(input1.shape)} and {list(input2.shape)}."
        )
    squares = ((input1 * input1).sum(-1) + _EPSILON) * ((input2 * input2).sum(-1) + _EPSILON)
    cosine = (input1 * input2).sum(-1) / squares.sqrt()
    same = f.where(f.eq(target, 1), 1.0 - cosine, 0.0)
    different = f.where(f.eq(target, -1), (cosine - margin).clamp(min=0), 0.0)
    return reduced(f, same + different, mode)


def _rows(name: str, input: Tensor, target: Tensor) -> Tensor:
    """Return ``input`` as ``[N, C]``, a vector or a number as one row.

    Raises ShapeError for other shapes, DTypeError unless ``target`` holds int64.
    """
    if input.ndim > 2 or (input.ndim and input.shape[-1] == 0):
        raise ShapeError(
            "Expected non-empty vector or matrix with optional 0-dim batch size, but got:"
            f" {list(input.shape)} ({name})"
        )
    if title_of(target.raw) != "Long":
        raise DTypeError(
            f"expected scalar type Long but found {title_of(target.raw)} ({name}: targets are class indices;"
            " convert with .long())"
        )
    return input if input.ndim == 2 else input.reshape(1, -1)


def _scores_at(x: Tensor, index: Tensor, message: str) -> Tensor:
    """Return ``x[n, index[n]]``; an index out of range raises IndexRangeError that begins with
    ``message``."""
    try:
        return x.gather(1, index)
    except IndexRangeError as error:
        raise IndexRangeError(f"{message}: there are {x.shape[1]} classes, 0 to {x.shape[1] - 1}") from error


def _reduce(losses: Tensor, mode: str) -> Tensor:
    """Return ``losses`` reduced by ``mode``; the mean of an empty tensor is 0, as in PyTorch."""
    return reduced(f, losses, "sum" if mode == "mean" and not losses.numel() else mode)


@titled("MultiMarginLoss0")
@runs_in("float32")
def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Sum over wrong classes of ``max(0, margin - input[target] + input[i]) ** p``, over the number of
    classes.

    ``input[N, C]`` or ``[C]``; ``target`` holds class indices; ``weight[C]`` weighs the targets' classes;
    ``p`` is 1 or 2.
    """
    mode = reduction_of(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ModuleValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.ndim != 1:
        raise ModuleValueError("weight must be one-dimensional")
    refuse_integers(input, "multi_margin_loss")
    x = _rows("multi_margin_loss", input, target)
    if target.ndim > 1 or target.numel() != x.shape[0]:
        raise ShapeError(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples"
            f" (batch size). Expected target size [{x.shape[0]}], but got {list(target.shape)}. Input has"
            f" shape {list(input.shape)}."
        )
    classes = x.shape[1]
    if weight is not None and weight.shape[0] != classes:
        raise ShapeError(f"inconsistent weight size, expected {classes} but got {list(weight.shape)}")
    without_gradient("multi_margin_loss", weight=weight)
    index = target.reshape(-1, 1)
    terms = (margin - _scores_at(x, index, "target out of range") + x).clamp(min=0)
    terms = terms if p == 1 else terms * terms
    if weight is not None:
        terms = terms * weight[index]
    wrong = f.ne(beside(index, arange(classes, device=x.device)), index)
    losses = f.where(wrong, terms, 0.0).sum(1) / classes
    return _reduce(losses.reshape(target.shape) if mode == "none" else losses, mode)


@titled("MultilabelMarginLoss0")
@runs_in("float32")
def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Sum of ``max(0, 1 - (input[j] - input[i]))`` over labels j and other classes i, over the number of
    classes.

    ``input[N, C]`` or ``[C]``; a row of ``target``, of the same shape, lists labels up to the first -1. All
    pairs are in memory at once: ``N * L * C`` numbers for at most L labels in a row.
    """
    mode = reduction_of(size_average, reduce, reduction)
    refuse_integers(input, "multilabel_margin_loss")
    x = _rows("multilabel_margin_loss", input, target)
    if tuple(target.shape) != tuple(input.shape):
        raise ShapeError(
            f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}"
        )
    rows = target.reshape(x.shape)
    end = f.eq(rows, -1)
    index = f.where(end, 0, rows)
    listed = f.eq(end.cumsum(1), 0)
    scores = _scores_at(x, index, "argument #2 'target' is out of range")
    other = f.eq(listed.long().new_zeros(x.shape).scatter_add(1, index, listed.long()), 0)
    width = int(extent(listed.long().sum(1))[1]) or x.shape[1]
    scores, listed = scores[:, :width], listed[:, :width]
    gaps = (1.0 - (scores.unsqueeze(2) - x.unsqueeze(1))).clamp(min=0)
    losses = f.where(listed.unsqueeze(2) & other.unsqueeze(1), gaps, 0.0).sum((1, 2)) / x.shape[1]
    return _reduce(losses.reshape(input.shape[:-1]), mode)


def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Mean over the last axis (classes) of the binary cross entropy of ``sigmoid(input)``; ``weight[C]``."""
    mode = reduction_of(size_average, reduce, reduction, "is not valid")
    if not input.ndim:
        raise IndexRangeError("Dimension specified as -1 but tensor has no dimensions: input[N, C] or [C]")
    losses = -(target * f.logsigmoid(input) + (1 - target) * f.logsigmoid(-input))
    if weight is not None:
        losses = losses * weight
    return reduced(f, losses.sum(-1) / input.shape[-1], mode)


@runs_in("float32")
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-6,
    swap: bool = False, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``max(0, margin + d(anchor, positive) - d(anchor, negative))`` with the ``p``-norm of the last axis.

    ``swap`` measures the negative's distance from anchor or positive, whichever is nearer to it.
    """
    mode = reduction_of(size_average, reduce, reduction)

    def distance(x: Tensor, y: Tensor) -> Tensor:
        return pairwise_distance(x, y, p, eps)

    return _triplet_loss(anchor, positive, negative, distance, margin, swap, mode)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """``triplet_margin_loss`` with a distance of your own; by default the Euclidean one."""
    mode = reduction_of(None, None, reduction)
    distance = pairwise_distance if distance_function is None else distance_function
    return _triplet_loss(anchor, positive, negative, distance, margin, swap, mode)


def _triplet_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    distance: Callable[[Tensor, Tensor], Tensor],
    margin: float,
    swap: bool,
    mode: str,
) -> Tensor:
    """Return the triplet loss by ``distance``, reduced by ``mode``."""
    if margin <= 0:
        raise ModuleValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise ShapeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions,"
            f" but got: anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D"
            " inputs"
        )
    far = distance(anchor, negative)
    if swap:
        far = f.minimum(far, distance(positive, negative))
    return reduced(f, (margin + distance(anchor, positive) - far).clamp_min(0), mode)
