"""``F.linear_cross_entropy``: the cross entropy of a linear layer's logits, at once or in chunks.

The logits of a large vocabulary are by far the largest tensor of a language model. With
``LinearCrossEntropyOptions`` only those of one chunk of rows exist at a time: each chunk is a checkpoint, so
backward recomputes its logits.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

import tenon.ops  # noqa: F401 - fills the op table
from tenon.autograd.checkpoint import checkpoint
from tenon.dtypes import bfloat16, dtype, float16, float32, float64, int64
from tenon.engine.op import table as f
from tenon.errors import DTypeError, ModuleValueError, ShapeError, TenonWarning
from tenon.nn.functional.arguments import reduction_of
from tenon.nn.functional.linear import linear
from tenon.nn.functional.loss import cross_entropy

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

_IGNORED = -100


class _Settings(TypedDict):
    """Arguments of ``cross_entropy`` that every chunk shares."""

    weight: Tensor | None
    ignore_index: int


@dataclass(frozen=True, slots=True)
class LinearCrossEntropyOptions:
    """Options for the chunking of rows in ``F.linear_cross_entropy``.

    A chunk has ``batch_chunk_size`` rows, or as many as ``chunking_method`` says: with ``"aspect_ratio:2"``
    its logits are half as large as the input, ``"auto"`` chooses, None takes all rows. Losses of chunks are
    summed in ``acc_dtype``: float32 for 16-bit inputs, else the input's dtype. ``allow_retain_graph`` and
    ``acc_policy`` have no effect: backward may always run again, and forward computes no gradients.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: Literal["accurate", "balanced", "compact", "auto"] = "auto"
    acc_dtype: dtype | None = None

    def __post_init__(self) -> None:
        if self.acc_policy not in ("auto", "accurate", "balanced", "compact"):
            raise ModuleValueError(
                f"invalid acc_policy: {self.acc_policy!r}. Give 'auto', 'accurate', 'balanced' or 'compact'."
            )
        if self.chunking_method not in (None, "auto"):
            _aspect_ratio(self.chunking_method)
        size = self.batch_chunk_size
        if size is not None and not (isinstance(size, int) and size > 0):
            raise ModuleValueError(f"batch_chunk_size must be positive int or None, got {size!r}")
        if self.acc_dtype not in (None, float16, bfloat16, float32, float64):
            raise ModuleValueError(
                "acc_dtype must be one of {None, torch.float16, torch.bfloat16, torch.float32,"
                f" torch.float64}}, got {self.acc_dtype!r}."
            )

    def rows(self, batch: int, features: int, classes: int) -> int:
        """Return the number of rows per chunk, out of ``batch``."""
        method, size = self.chunking_method, self.batch_chunk_size
        if method == "auto":
            method = None if size is not None else "aspect_ratio:2"
        if method is None:
            return max(1, min(batch if size is None else size, batch))
        target_rows = -(-batch // -(-classes // max(features, 1)))
        rows = min((1 << max(target_rows - 1, 0).bit_length()) // _aspect_ratio(method), batch)
        if size not in (None, rows):
            raise ModuleValueError(
                f"batch_chunk_size (={size}) and chunking_method ({method!r}) give different chunk sizes"
                f" ({size} vs {rows}); pass only one."
            )
        return max(1, rows)


def _aspect_ratio(method: str | None) -> int:
    """Return the factor of a chunking method: 2 of ``"aspect_ratio:2"``, 1 of ``"aspect_ratio"``."""
    name, colon, factor = str(method).partition(":")
    if name != "aspect_ratio" or (colon and not (factor.isdigit() and int(factor))):
        raise ModuleValueError(
            f"invalid chunking_method: {method!r}. Give 'auto', 'aspect_ratio' or 'aspect_ratio:2'."
        )
    return int(factor) if colon else 1


def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean", ignore_index: int | None = None, label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Tensor:  # fmt: skip
    """``cross_entropy(linear(input, linear_weight, linear_bias), target)``.

    ``input[N, in]`` or ``[in]``; ``linear_weight[C, ..., in]`` and ``linear_bias[C, ...]``. ``options``
    divide ``N`` into chunks whose logits do not exist at the same time. They apply to class indices and a
    weight ``[C, in]`` without ``label_smoothing``; other calls warn and ignore them.
    """
    _check(input, linear_weight, linear_bias)
    sizes = tuple(linear_weight.shape[:-1])
    soft = tuple(target.shape) == (*input.shape[:-1], *sizes)
    if soft and ignore_index is not None:
        raise ShapeError("ignore_index cannot be specified when target contains probabilities")
    settings: _Settings = {
        "weight": weight,
        "ignore_index": _IGNORED if ignore_index is None else ignore_index,
    }
    hard = target.dtype == int64 and not soft and label_smoothing == 0.0 and len(sizes) == 1
    if options is not None and not hard:
        warnings.warn(
            "linear_cross_entropy: options are ignored; chunks need int64 class indices, a weight [C, in]"
            f" (out_features == ()) and label_smoothing=0, got {target.dtype} targets"
            f" {list(target.shape)}, a weight {list(linear_weight.shape)} and"
            f" label_smoothing={label_smoothing}.",
            TenonWarning,
            stacklevel=2,
        )
    elif options is not None:
        mode = reduction_of(None, None, reduction)
        rows = input if input.ndim == 2 else input.unsqueeze(0)
        classes = target if input.ndim == 2 else target.reshape(-1)
        losses = _in_chunks(rows, linear_weight, classes, linear_bias, options, mode, settings)
        return losses if input.ndim == 2 else losses.reshape(())
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    scores = linear(input, linear_weight.reshape(-1, linear_weight.shape[-1]), bias)
    scores = scores.reshape(*input.shape[:-1], *sizes)
    return cross_entropy(scores, target, reduction=reduction, label_smoothing=label_smoothing, **settings)


def _check(input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Raise ShapeError unless ``input[N, in]`` or ``[in]``, ``weight[C, ..., in]`` and ``bias[C, ...]``
    fit."""
    if input.ndim not in (1, 2):
        raise ShapeError(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    if weight.ndim < 2:
        raise ShapeError(f"expected linear_weight with dimensionality at least 2, got {weight.ndim}")
    if input.shape[-1] != weight.shape[-1]:
        raise ShapeError(
            "expected equal input and linear_weight last dimensions (in_features), got"
            f" {input.shape[-1]} and {weight.shape[-1]}, respectively"
        )
    if bias is not None and tuple(bias.shape) != tuple(weight.shape[:-1]):
        raise ShapeError(f"expected linear_bias shape {tuple(weight.shape[:-1])}, got {tuple(bias.shape)}")
    if weight.ndim > 2 and input.ndim == 1:
        raise ShapeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(weight.shape)} requires batched input"
            f" [N, {input.shape[-1]}], got unbatched input with shape {tuple(input.shape)}"
        )


def _in_chunks(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    options: LinearCrossEntropyOptions,
    mode: str,
    settings: _Settings,
) -> Tensor:
    """Return the loss, computed by chunks of rows of ``x[N, in]``; ``mode`` is the reduction."""
    rows = options.rows(x.shape[0], x.shape[1], weight.shape[0])
    short = x.dtype in (float16, bfloat16)
    summing = options.acc_dtype or (float32 if short else x.dtype)
    if summing != x.dtype and not (short and summing == float32):
        raise DTypeError(
            "linear_cross_entropy supports float32 acc_dtype with float16/bfloat16 inputs, but got"
            f" {summing} acc_dtype and {x.dtype} inputs."
        )
    classes_weight = settings["weight"]
    chunk_settings: _Settings = {
        "weight": None if classes_weight is None else classes_weight.to(summing),
        "ignore_index": settings["ignore_index"],
    }

    def chunk_loss(part: Tensor, classes: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        scores = linear(part.to(summing), weight.to(summing), None if bias is None else bias.to(summing))
        each = cross_entropy(scores, classes, reduction="none", **chunk_settings)
        return each if mode == "none" else each.sum()

    if tuple(target.shape) != (x.shape[0],):
        raise ShapeError(
            f"Expected input batch_size ({x.shape[0]}) to match target batch_size ({list(target.shape)})."
        )
    run = functools.partial(checkpoint, chunk_loss, use_reentrant=False, preserve_rng_state=False)
    losses = [
        run(x[i : i + rows], target[i : i + rows], weight, bias) for i in range(0, max(x.shape[0], 1), rows)
    ]
    if mode == "none":
        return f.cat(*losses, axis=0).to(x.dtype)
    total = losses[0]
    for loss in losses[1:]:
        total = total + loss
    if mode == "mean":
        total = total / _mean_divisor(target, settings["weight"], settings["ignore_index"]).to(summing)
    return total.to(x.dtype)


def _mean_divisor(target: Tensor, weight: Tensor | None, ignore_index: int) -> Tensor:
    """Return the divisor of a mean loss: the number of targets not ignored, or the sum of their weights."""
    present = target != ignore_index
    if weight is None:
        return present.sum()
    return (weight[f.where(present, target, 0)] * present).sum()
