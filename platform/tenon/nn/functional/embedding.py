"""Rows of tables: ``F.embedding``, ``F.one_hot``."""

from __future__ import annotations

from typing import Any

import tenon.ops  # noqa: F401 - a table without ops finds nothing
from tenon.core.aval import Aval
from tenon.core.grad_mode import is_grad_enabled, no_grad
from tenon.core.op import table as f
from tenon.errors import IndexRangeError, ModuleValueError, ShapeError, UnsupportedError


def embedding(
    input: Any,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """``weight[input]``. ``max_norm`` shrinks the rows used, in place; row ``padding_idx`` gets no
    gradient."""
    if sparse and weight.requires_grad and is_grad_enabled():
        raise UnsupportedError("embedding: sparse gradients are not supported; leave sparse=False.")
    if weight.raw.ndim != 2:
        raise ShapeError(f"embedding: 'weight' must be 2-D, got {list(weight.raw.shape)}.")
    rows = weight.raw.shape[0]
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise ModuleValueError(f"Padding_idx must be within num_embeddings: {padding_idx} of {rows}")
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


def _renormalise(weight: Any, input: Any, max_norm: float, norm_type: float) -> None:
    """Scale the rows that ``input`` names down to ``max_norm``."""
    if isinstance(weight.raw, Aval):
        return
    used = input.detach().reshape(-1).unique()
    chosen = f.embedding(weight.detach(), used)
    norms = chosen.norm(norm_type, dim=1, keepdim=True)
    scale = f.where(f.gt(norms, max_norm), f.div(max_norm, f.add(norms, 1e-7)), 1.0)
    weight.detach()[used] = chosen * scale


def one_hot(tensor: Any, num_classes: int = -1) -> Any:
    """Ones at the class indices, on a new last axis."""
    from tenon import dtypes
    from tenon.core.factories import zeros

    if tensor.dtype is not dtypes.int64:
        raise ModuleValueError(
            f"one_hot is only applicable to index tensor of type LongTensor, got {tensor.dtype}."
        )
    if tensor.raw.size == 0 and num_classes <= 0:
        raise ModuleValueError("Can not infer total number of classes from empty tensor.")
    low, high = (int(tensor.min()), int(tensor.max())) if tensor.raw.size else (0, -1)
    if low < 0:
        raise IndexRangeError(f"Class values must be non-negative. (smallest: {low})")
    if num_classes == -1:
        num_classes = high + 1
    elif high >= num_classes:
        raise IndexRangeError(f"Class values must be smaller than num_classes. ({high} >= {num_classes})")
    made = zeros(*tensor.raw.shape, num_classes, dtype=dtypes.int64, device=tensor.device)
    return made.scatter_(-1, tensor.unsqueeze(-1), 1)
