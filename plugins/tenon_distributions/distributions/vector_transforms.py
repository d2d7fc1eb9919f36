"""Transforms of vectors and matrices: onto simplices, Cholesky factors, correlations; and along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon.errors import ArgumentError
from tenon.nn.functional import logsigmoid, pad, softplus
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.transform import Transform, check_dimensions
from tenon_distributions.distributions.utils import _sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix

if TYPE_CHECKING:
    from tenon import Size, Tensor


class SoftmaxTransform(Transform):
    """``y = softmax(x)``, which is not bijective: its inverse is ``log(y)``."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    _equality_attributes = ()

    def _call(self, x: Tensor) -> Tensor:
        return tenon.softmax(x, -1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def forward_shape(self, shape: Size) -> Size:
        """Return ``shape``."""
        check_dimensions(shape, 1)
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(Transform):
    """Map ``n`` numbers to a point of the simplex of ``n + 1`` by stick breaking.

    Each number takes a share of what the previous ones left of a stick of length 1. The shares are sigmoids,
    shifted so that zeros give equal parts.
    """

    bijective = True
    domain = constraints.real_vector
    codomain = constraints.simplex
    _equality_attributes = ()

    def _call(self, x: Tensor) -> Tensor:
        share = tenon.sigmoid(x - _remaining_counts(x).log())
        left = (1 - share).cumprod(-1)
        return pad(share, [0, 1], value=1.0) * pad(left, [1, 0], value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        part = y[..., :-1]
        left = (1 - part.cumsum(-1)).clamp(min=tenon.finfo(y.dtype).tiny)
        return part.log() - left.log() + _remaining_counts(part).log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the log-determinant of the triangular Jacobian, ``dy_i/dx_i = y_i (1 - share_i)``."""
        x = x - _remaining_counts(x).log()
        return (logsigmoid(-x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Size) -> Size:
        """Return ``shape`` with its last size increased by 1."""
        check_dimensions(shape, 1)
        return tenon.Size((*shape[:-1], shape[-1] + 1))

    def inverse_shape(self, shape: Size) -> Size:
        """Return ``shape`` with its last size decreased by 1."""
        check_dimensions(shape, 1)
        return tenon.Size((*shape[:-1], shape[-1] - 1))


def _remaining_counts(x: Tensor) -> Tensor:
    """Return n, n - 1, ..., 1: how many parts follow each of the ``n`` numbers in the last axis."""
    n = x.shape[-1]
    return tenon.arange(n, 0, -1, dtype=x.dtype, device=x.device)


class LowerCholeskyTransform(Transform):
    """Map square matrices to Cholesky factors: the lower triangle, with the exponential of the diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky
    _equality_attributes = ()

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """Map square matrices to positive definite ones, by their Cholesky factors."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite
    _equality_attributes = ()

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(tenon.linalg.cholesky(y))


class CorrCholeskyTransform(Transform):
    """Map ``n (n - 1) / 2`` numbers to the Cholesky factor of a correlation matrix of size ``n``.

    Their hyperbolic tangents are canonical partial correlations (Lewandowski, Kurowicka and Joe, 2009): each
    takes a share of what the previous ones left of a row of length 1.
    """

    bijective = True
    domain = constraints.real_vector
    codomain = constraints.corr_cholesky

    def _call(self, x: Tensor) -> Tensor:
        eps = tenon.finfo(x.dtype).eps
        partial = vec_to_tril_matrix(tenon.tanh(x).clamp(min=-1 + eps, max=1 - eps), diag=-1)
        left = (1 - partial * partial).sqrt().cumprod(-1)
        unit = tenon.eye(partial.shape[-1], dtype=x.dtype, device=x.device)
        return (partial + unit) * pad(left[..., :-1], [1, 0], value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        left = pad((1 - (y * y).cumsum(-1))[..., :-1], [1, 0], value=1.0)
        share = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()
        return (share.log1p() - (-share).log1p()) / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the log-determinant, of the remaining lengths' square roots and tanh's derivatives."""
        left = tril_matrix_to_vec(1 - (y * y).cumsum(-1), diag=-2)
        return 0.5 * left.log().sum(-1) - 2 * (x + softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape: Size) -> Size:
        """Return ``shape`` with the axes of a square matrix in place of the last axis."""
        check_dimensions(shape, 1)
        count = shape[-1]
        size = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != count:
            raise ArgumentError("Input is not a flattend lower-diagonal number")
        return tenon.Size((*shape[:-1], size, size))

    def inverse_shape(self, shape: Size) -> Size:
        """Return ``shape`` with the axis of a vector in place of the last two axes."""
        check_dimensions(shape, 2)
        if shape[-2] != shape[-1]:
            raise ArgumentError("Input is not square")
        return tenon.Size((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))


class _AxisTransforms(Transform):
    """Base class of transforms that apply one of several transforms to each part of the axis ``dim``."""

    transforms: list[Transform]

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise ArgumentError("tseq must be transforms")
        super().__init__(cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """Whether all transforms are bijective."""
        return all(t.bijective for t in self.transforms)

    def _split(self, z: Tensor) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _join(self, parts: list[Tensor]) -> Tensor:
        raise NotImplementedError

    def _call(self, x: Tensor) -> Tensor:
        return self._join([t(v) for t, v in zip(self.transforms, self._split(x), strict=True)])

    def _inverse(self, y: Tensor) -> Tensor:
        return self._join([t.inv(v) for t, v in zip(self.transforms, self._split(y), strict=True)])


class CatTransform(_AxisTransforms):
    """Apply a transform to each section of the axis ``dim``, of sizes ``lengths``, and concatenate."""

    def __init__(
        self,
        tseq: Sequence[Transform],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise ArgumentError(f"lengths must be one for each of {len(self.transforms)} transforms")

    @property
    def event_dim(self) -> int:
        """The largest number of event axes of the transforms."""
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        """The size of the axis, the sum of ``lengths``."""
        return sum(self.lengths)

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Return this transform with that cache in every part."""
        if self._cache_size == cache_size:
            return self
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _split(self, z: Tensor) -> tuple[Tensor, ...]:
        if z.shape[self.dim] != self.length:
            raise ArgumentError(f"axis {self.dim} has size {z.shape[self.dim]}, the sections {self.lengths}")
        return z.split(self.lengths, self.dim)

    def _join(self, parts: list[Tensor]) -> Tensor:
        return tenon.cat(parts, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the sections' log-determinants, concatenated, or summed if the axis is an event axis."""
        log_dets: list[Tensor] = []
        for t, before, after in zip(self.transforms, self._split(x), self._split(y), strict=True):
            log_det = t.log_abs_det_jacobian(before, after)
            log_dets.append(_sum_rightmost(log_det, self.event_dim - t.event_dim))
        axis = (self.dim - x.dim() if self.dim >= 0 else self.dim) + self.event_dim
        return tenon.cat(log_dets, axis) if axis < 0 else sum(log_dets[1:], log_dets[0])

    @constraints.dependent_property
    def domain(self) -> constraints.Constraint:
        """The transforms' domains, by section."""
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> constraints.Constraint:
        """The transforms' codomains, by section."""
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_AxisTransforms):
    """Apply a transform to each slice along the axis ``dim`` and stack the results."""

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Return this transform with that cache in every part."""
        return (
            self if self._cache_size == cache_size else StackTransform(self.transforms, self.dim, cache_size)
        )

    def _split(self, z: Tensor) -> tuple[Tensor, ...]:
        if z.shape[self.dim] != len(self.transforms):
            raise ArgumentError(
                f"axis {self.dim} has size {z.shape[self.dim]}, there are {len(self.transforms)} transforms"
            )
        return z.unbind(self.dim)

    def _join(self, parts: list[Tensor]) -> Tensor:
        return tenon.stack(parts, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the log-determinants of the slices, stacked."""
        pairs = zip(self.transforms, self._split(x), self._split(y), strict=True)
        return tenon.stack([t.log_abs_det_jacobian(a, b) for t, a, b in pairs], self.dim)

    @constraints.dependent_property
    def domain(self) -> constraints.Constraint:
        """The transforms' domains, by slice."""
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> constraints.Constraint:
        """The transforms' codomains, by slice."""
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
