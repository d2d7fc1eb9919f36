"""Lengths and distances of vectors: ``F.normalize``, ``F.cosine_similarity``, ``F.pdist``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tenon.ops  # noqa: F401 - fills the op table
from tenon.compat.node_names import titled
from tenon.engine.op import table as f
from tenon.engine.operands import need_flags
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.kernels.promotion import result_type
from tenon.kernels.shapes import broadcast_shapes
from tenon.nn.functional.arguments import clamped_from_below
from tenon.ops.dtype_queries import title_of
from tenon.tensors.creation.factories import triu_indices
from tenon.tensors.precision import runs_in
from tenon.tensors.wrong_arguments import only_tensors

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


def normalize(
    input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """``input`` over its ``p``-norm along ``dim`` (at least ``eps``)."""
    result = input / input.norm(p, dim, keepdim=True).clamp(min=eps).expand_as(input)
    return result if out is None else out.copy_(result)


@runs_in("usual", cuda="float32")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Cosine of the angle between ``x1`` and ``x2`` along ``dim``."""
    if not (x1.is_floating_point() or x2.is_floating_point() or x1.is_complex() or x2.is_complex()):
        raise DTypeError(
            "expected common dtype to be floating point, yet common dtype is"
            f" {title_of(x1.raw)} (cosine_similarity)"
        )
    if not eps >= 0:
        raise ArgumentError(f"eps must be non-negative, got: {eps}")
    if x1.raw.shape != x2.raw.shape:  # ``dim`` is an axis of the broadcast shape
        shape = broadcast_shapes(x1.raw.shape, x2.raw.shape)
        x1, x2 = x1.expand(shape), x2.expand(shape)
    if x1.dtype != x2.dtype:
        common = result_type(x1, x2)
        x1, x2 = x1.to(common), x2.to(common)
    norms = [clamped_from_below(x.norm(2, dim, keepdim=True), eps) for x in (x1, x2)]
    return (x1 / norms[0] * (x2 / norms[1])).sum(dim)


@titled("Norm1")
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """``p``-norm of ``x1 - x2 + eps`` along the last axis."""
    only_tensors(x1, x2)
    need_flags("pairwise_distance", keepdim=keepdim)
    return (x1 - x2 + eps).norm(p, -1, keepdim)


@titled("Pdist0")
@runs_in("float32")
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """``p``-norm distances of the ``N (N - 1) / 2`` pairs of rows of ``input[N, D]``, sorted by the first
    row, then the second."""
    if input.ndim != 2:
        raise ShapeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if not input.is_floating_point():
        raise DTypeError(f"pdist only supports floating-point dtypes, got {input.dtype}")
    if not p >= 0:
        raise ArgumentError(f"pdist only supports non-negative p values, got {p}")
    first, second = triu_indices(input.shape[0], input.shape[0], 1, device=input.device)
    return f.vector_norm(input[first] - input[second], order=float(p), axes=(1,), keepdims=False)
