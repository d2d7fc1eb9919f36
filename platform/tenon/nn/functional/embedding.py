"""Lookups by integer index: ``F.embedding``, ``F.embedding_bag``, ``F.one_hot``."""

from __future__ import annotations

import warnings
from operator import index
from typing import TYPE_CHECKING

import tenon.ops  # noqa: F401 - fills the op table
from tenon import dtypes
from tenon.compat.node_names import titled
from tenon.engine.aval import Aval
from tenon.engine.op import table as f
from tenon.engine.operands import need_flags, wrong_type
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import (
    DTypeError,
    IndexRangeError,
    ModuleValueError,
    OptionError,
    ShapeError,
    TenonWarning,
    UnsupportedError,
)
from tenon.kernels.whole_arrays import beside, gathered
from tenon.nn.functional.arguments import refuse_integers
from tenon.tensors.autograd.grad_mode import is_grad_enabled, no_grad
from tenon.tensors.creation.ranges import arange

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """``weight[input]``. ``max_norm`` shrinks the rows used, in place; row ``padding_idx`` gets no gradient.

    ``sparse`` has no effect but a warning: the gradient is dense here, with the same values.
    """
    if not isinstance(input, Value):
        raise wrong_type("embedding", "input", 1, input)
    _warn_of_sparse(sparse, weight)
    if weight.raw.ndim != 2:
        raise ShapeError(f"embedding: 'weight' must be 2-D, got {list(weight.raw.shape)}.")
    rows = weight.raw.shape[0]
    if padding_idx is not None:
        if not -rows <= index(padding_idx) < rows:
            raise OptionError(f"Padding_idx must be within num_embeddings: {padding_idx} of {rows}")
        padding_idx %= rows
    if max_norm is not None:
        with no_grad():
            _renormalise(weight, input, max_norm, norm_type)
    return f.embedding(
        weight,
        input,
        padding_idx=-1 if padding_idx is None else padding_idx,
        by_frequency=bool(scale_grad_by_freq),
    )


def _warn_of_sparse(sparse: bool, weight: Tensor) -> None:
    """Warn that the gradient of ``weight`` will not be sparse."""
    if sparse and weight.requires_grad and is_grad_enabled():
        warnings.warn(
            "sparse=True: the gradient of the table is dense in tenon, with the same values. Pass"
            " sparse=False to avoid this warning.",
            TenonWarning,
            stacklevel=3,
        )


@titled("EmbeddingBag0")
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sums, means or maxima of the rows ``weight[input]`` of each bag: ``[B, D]``; an empty bag gives 0.

    Each row of ``input[B, S]`` is a bag; the bags of ``input[L]`` begin at ``offsets[B]``. With
    ``include_last_offset`` the last offset is the end of the last bag; with mode "max", and with a
    ``padding_idx``, that bag takes all the rest instead, as in PyTorch. ``per_sample_weights`` multiply the
    rows of sums; ``padding_idx`` does not count. ``max_norm``, ``sparse`` and ``scale_grad_by_freq`` are
    those of ``embedding``.
    """
    if weight.dtype in (dtypes.int64, dtypes.int32) and input.is_floating_point():
        warnings.warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage"
            " `embedding_bag(weight, input, ...)` is deprecated, and should now be"
            " `embedding_bag(input, weight, ...)`.",
            TenonWarning,
            stacklevel=2,
        )
        input, weight = weight, input
    refuse_integers(weight, "embedding_bag")
    _check_bags(input, weight, offsets, mode, scale_grad_by_freq, sparse, per_sample_weights)
    _warn_of_sparse(sparse, weight)
    flat, starts, end = bags_of(input, offsets, include_last_offset, padding_idx is None and mode != "max")
    rows = weight.raw.shape[0]
    if padding_idx is not None:
        if not -rows <= index(padding_idx) < rows:
            raise IndexRangeError(
                f"padding_idx must be within the number of embeddings, -{rows} through {rows - 1}, but got"
                f" {padding_idx}"
            )
        padding_idx %= rows
    if max_norm is not None:
        with no_grad():
            _renormalise(weight, flat, max_norm, norm_type)
    skipped = -1 if padding_idx is None else padding_idx
    try:
        items = f.embedding(weight, flat, padding_idx=skipped, by_frequency=bool(scale_grad_by_freq))
    except IndexRangeError as error:
        wrong = flat[(flat < 0) | (flat >= rows)]
        raise IndexRangeError(
            "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be"
            f" {int(wrong[0])}, and num_embeddings is {rows}. Check num_embeddings and the vocabulary."
        ) from error
    counted = f.ne(flat, skipped).unsqueeze(1)
    if padding_idx is not None:
        items = f.where(counted, items, 0.0)
    if per_sample_weights is not None:
        wide = items.raw.dtype.itemsize == 2  # products in 16 bits may be infinite, and their sum NaN
        items = (
            items.float() * per_sample_weights.reshape(-1, 1).float()
            if wide
            else (items * per_sample_weights.reshape(-1, 1))
        )
    if mode == "max":
        return _bag_maxima(items, counted, starts, end)
    sums = f.segment_sum(items, starts, end=end)
    if mode == "sum":
        return sums.to(weight.dtype)
    return sums / f.segment_sum(counted.to(sums.dtype), starts, end=end).clamp(min=1)


def _check_bags(
    input: Tensor, weight: Tensor, offsets: Tensor | None, mode: str, scale_grad_by_freq: bool, sparse: bool,
    per_sample_weights: Tensor | None,
) -> None:  # fmt: skip
    """Raise ModuleValueError or DTypeError, with PyTorch's messages, unless the arguments fit each other."""
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise ModuleValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then it must"
            f" have the same shape as the input ({input.shape})"
        )
    if weight.ndim != 2:
        raise ModuleValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    if input.ndim == 2 and offsets is not None:
        raise ModuleValueError(
            "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length"
            f" sequences. However, found offsets of type {type(offsets)}"
        )
    if input.ndim == 1 and (offsets is None or offsets.ndim != 1):
        raise ModuleValueError(
            "offsets has to be a 1D Tensor"
            + (" but got None" if offsets is None else f", not {offsets.ndim}D")
        )
    if offsets is not None and offsets.dtype not in (dtypes.int64, dtypes.int32):
        raise DTypeError(
            "Expected tensor for argument #1 'offsets' to have one of the following scalar types: Long, Int;"
            f" but got {offsets.dtype} instead (while checking arguments for embedding_bag). Use .long()."
        )
    if input.ndim not in (1, 2):
        raise ModuleValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    if mode not in ("sum", "mean", "max"):
        raise ModuleValueError("mode has to be one of sum, mean or max")
    if mode == "max" and scale_grad_by_freq:
        raise ModuleValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ModuleValueError("max mode does not support sparse weights")
    if per_sample_weights is not None:
        if mode != "sum":
            raise UnsupportedError(
                "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for"
                f" mode='sum' (got mode='{mode}')."
            )
        if per_sample_weights.dtype != weight.dtype:
            raise DTypeError(
                "Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1"
                f" 'per_sample_weights'; but type {weight.dtype} does not equal {per_sample_weights.dtype}"
                " (while checking arguments for embedding_bag)"
            )


def _check_ends(first: int, last: int, length: int) -> None:
    """Raise ShapeError unless the first offset is 0 and the last at most ``length``."""
    if first:
        raise ShapeError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0."
            f" However, got {first}"
        )
    if last > length:
        raise ShapeError(
            f"offsets[-1] can not be greater than input's length {length} but got offsets[-1] of {last}"
        )


def bags_of(
    input: Tensor, offsets: Tensor | None, include_last_offset: bool, ends_at_last_offset: bool
) -> tuple[Tensor, Tensor, int]:
    """Return all indices as one vector, the start of each bag in it, and the end of the last bag.

    With ``include_last_offset``, that end is the last offset if ``ends_at_last_offset``, else the end of
    input."""
    if offsets is None:
        starts = arange(input.shape[0], device=input.device) * input.shape[1]
        return input.reshape(-1), beside(input, starts), input.numel()
    need_flags("embedding_bag", include_last_offset=include_last_offset)
    offsets = offsets.to(dtypes.int64)
    if offsets.numel() and offsets.device.type == "cpu" and WATCHERS.recorder is None:
        ends = gathered(offsets).raw
        _check_ends(int(ends[0]), int(ends[-1]), input.shape[0])
    if not include_last_offset:
        return input, offsets, input.shape[0]
    if not offsets.numel():
        raise ShapeError("include_last_offset: number of offset should be at least 1")
    return input, offsets[:-1], int(offsets[-1]) if ends_at_last_offset else input.shape[0]


def _bag_maxima(items: Tensor, counted: Tensor, starts: Tensor, end: int) -> Tensor:
    """Return the maxima of each bag, ``[B, D]``; of equal rows the first gets the gradient.

    ``counted`` is False for rows to leave out. Bags are padded to the size of the largest.
    """
    last = starts.new_full((1,), end)
    counts = f.cat(starts, last, axis=0).diff()
    width = int(counts.max()) if counts.numel() and not isinstance(counts.raw, Aval) else 0
    if not width:
        return f.segment_sum(items, starts, end=end)  # zeros, from which gradients still reach the table
    if int(counts.min()) == width:  # bags of one size: the rows need no padding
        table, present = (v[:end].reshape(-1, width, v.shape[1]) for v in (items, counted))
    else:
        positions = beside(counts, arange(width, device=items.device))
        inside = f.lt(positions, counts.unsqueeze(1))
        index = f.where(inside, starts.unsqueeze(1) + positions, 0)
        table, present = items[index], inside.unsqueeze(2) & counted[index]
    table = f.where(present, table, float("-inf"))
    return f.where(present.any(1), table.max(1).values, 0.0)


def _renormalise(weight: Tensor, input: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows of ``weight`` at the indices ``input`` down to ``max_norm``, in place."""
    if isinstance(weight.raw, Aval):
        return
    used = input.detach().reshape(-1).unique()
    rows = f.embedding(weight.detach(), used)
    norms = rows.norm(norm_type, dim=1, keepdim=True)
    scale = f.where(f.gt(norms, max_norm), f.div(max_norm, f.add(norms, 1e-7)), 1.0)
    weight.detach()[used] = rows * scale


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Ones at the class indices, on a new last axis.

    A graph that is recorded does not check that the indices are classes.
    """
    if tensor.dtype is not dtypes.int64:
        raise ModuleValueError(
            f"one_hot is only applicable to index tensor of type LongTensor, got {tensor.dtype}."
        )
    if tensor.raw.size == 0 and num_classes <= 0:
        raise ModuleValueError("Can not infer total number of classes from empty tensor.")
    if num_classes > 0 and WATCHERS.recorder is not None:
        return f.one_hot(tensor, classes=num_classes)
    low, high = (int(tensor.min()), int(tensor.max())) if tensor.raw.size else (0, -1)
    if low < 0:
        raise IndexRangeError(f"Class values must be non-negative. (smallest: {low})")
    if num_classes == -1:
        num_classes = high + 1
    elif high >= num_classes:
        raise IndexRangeError(f"Class values must be smaller than num_classes. ({high} >= {num_classes})")
    return f.one_hot(tensor, classes=num_classes)
