"""Maps of vectors and matrices: onto simplices, Cholesky factors and correlations; and maps by slices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tenon
from tenon.errors import ArgumentError
from tenon.nn.functional import logsigmoid, pad, softplus
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.transform import Transform, need_axes
from tenon_distributions.distributions.utils import _sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix

if TYPE_CHECKING:
    from tenon import Tensor
    from tenon.extend import Size


class SoftmaxTransform(Transform):
    """``y = softmax(x)``, which is not bijective: its inverse is ``log(y)``."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    _compared = ()

    def _call(self, x: Any) -> Any:
        return tenon.softmax(x, -1)

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def forward_shape(self, shape: Any) -> Any:
        """The same."""
        need_axes(shape, 1)
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(Transform):
    """``n`` numbers to a point of the simplex of ``n + 1``: each takes its share of what is left of a stick.

    The shares are sigmoids, shifted so that zeros give equal parts.
    """

    bijective = True
    domain = constraints.real_vector
    codomain = constraints.simplex
    _compared = ()

    def _call(self, x: Tensor) -> Tensor:
        share = tenon.sigmoid(x - _pieces_left(x).log())
        left = (1 - share).cumprod(-1)
        return pad(share, [0, 1], value=1.0) * pad(left, [1, 0], value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        part = y[..., :-1]
        left = (1 - part.cumsum(-1)).clamp(min=tenon.finfo(y.dtype).tiny)
        return part.log() - left.log() + _pieces_left(part).log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """``dy_i/dx_i = y_i (1 - share_i)``, and the matrix is triangular."""
        x = x - _pieces_left(x).log()
        return (logsigmoid(-x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Size | Sequence[int]) -> Size:
        """One more in the last axis."""
        need_axes(shape, 1)
        return tenon.Size((*shape[:-1], shape[-1] + 1))

    def inverse_shape(self, shape: Size) -> Size:
        """One less in the last axis."""
        need_axes(shape, 1)
        return tenon.Size((*shape[:-1], shape[-1] - 1))


def _pieces_left(x: Tensor) -> Tensor:
    """n, n - 1, ..., 1: how many parts follow each of the ``n`` numbers."""
    n = x.shape[-1]
    return tenon.arange(n, 0, -1, dtype=x.dtype, device=x.device)


class LowerCholeskyTransform(Transform):
    """Square matrices to Cholesky factors: the lower triangle with an exponential diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky
    _compared = ()

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Any) -> Any:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """Square matrices to positive definite ones, by their Cholesky factors."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite
    _compared = ()

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Any) -> Any:
        return LowerCholeskyTransform().inv(tenon.linalg.cholesky(y))


class CorrCholeskyTransform(Transform):
    """``n (n - 1) / 2`` numbers to the Cholesky factor of a correlation matrix of size ``n``.

    Their tangents are canonical partial correlations (Lewandowski, Kurowicka and Joe, 2009): each takes its
    share of what is left of a row of length 1.
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

    def _inverse(self, y: Any) -> Any:
        left = pad((1 - (y * y).cumsum(-1))[..., :-1], [1, 0], value=1.0)
        share = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()
        return (share.log1p() - (-share).log1p()) / 2

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The roots of what was left at each number, and the slopes of tanh."""
        left = tril_matrix_to_vec(1 - (y * y).cumsum(-1), diag=-2)
        return 0.5 * left.log().sum(-1) - 2 * (x + softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        """A square matrix in place of the last axis."""
        need_axes(shape, 1)
        count = shape[-1]
        size = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != count:
            raise ArgumentError("Input is not a flattend lower-diagonal number")
        return tenon.Size((*shape[:-1], size, size))

    def inverse_shape(self, shape: Any) -> Any:
        """A vector in place of the last two axes."""
        need_axes(shape, 2)
        if shape[-2] != shape[-1]:
            raise ArgumentError("Input is not square")
        return tenon.Size((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))


class _Slices(Transform):
    """Transforms for pieces of the axis ``dim``."""

    transforms: list[Transform]

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise ArgumentError("tseq must be transforms")
        super().__init__(cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """Whether all parts are."""
        return all(t.bijective for t in self.transforms)

    def _split(self, z: Any) -> Any:
        raise NotImplementedError

    def _join(self, parts: list[Any]) -> Any:
        raise NotImplementedError

    def _call(self, x: Tensor) -> Tensor:
        return self._join([t(v) for t, v in zip(self.transforms, self._split(x), strict=True)])

    def _inverse(self, y: Any) -> Any:
        return self._join([t.inv(v) for t, v in zip(self.transforms, self._split(y), strict=True)])


class CatTransform(_Slices):
    """A transform for each piece, of ``lengths``, of the axis ``dim``: as ``cat`` joins tensors."""

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
        """The most axes that a part has."""
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        """The size of the axis."""
        return sum(self.lengths)

    def with_cache(self, cache_size: int = 1) -> Any:
        """The parts with that cache."""
        if self._cache_size == cache_size:
            return self
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _split(self, z: Tensor) -> tuple[Tensor, ...]:
        if z.shape[self.dim] != self.length:
            raise ArgumentError(f"axis {self.dim} has size {z.shape[self.dim]}, the pieces {self.lengths}")
        return z.split(self.lengths, self.dim)

    def _join(self, parts: list[Any]) -> Tensor:
        return tenon.cat(parts, self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """Those of the pieces, joined, or summed where the axis is part of a value."""
        slopes = []
        for t, before, after in zip(self.transforms, self._split(x), self._split(y), strict=True):
            slope = t.log_abs_det_jacobian(before, after)
            slopes.append(_sum_rightmost(slope, self.event_dim - t.event_dim))
        axis = (self.dim - x.dim() if self.dim >= 0 else self.dim) + self.event_dim
        return tenon.cat(slopes, axis) if axis < 0 else sum(slopes)

    @constraints.dependent_property
    def domain(self) -> Any:
        """The parts', by pieces."""
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        """The parts', by pieces."""
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_Slices):
    """A transform for each slice of the axis ``dim``: as ``stack`` joins tensors."""

    def with_cache(self, cache_size: int = 1) -> Any:
        """The parts with that cache."""
        return (
            self if self._cache_size == cache_size else StackTransform(self.transforms, self.dim, cache_size)
        )

    def _split(self, z: Tensor) -> tuple[Tensor, ...]:
        if z.shape[self.dim] != len(self.transforms):
            raise ArgumentError(
                f"axis {self.dim} has size {z.shape[self.dim]}, there are {len(self.transforms)} transforms"
            )
        return z.unbind(self.dim)

    def _join(self, parts: list[Any]) -> Tensor:
        return tenon.stack(parts, self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """Those of the slices, stacked."""
        pairs = zip(self.transforms, self._split(x), self._split(y), strict=True)
        return tenon.stack([t.log_abs_det_jacobian(a, b) for t, a, b in pairs], self.dim)

    @constraints.dependent_property
    def domain(self) -> Any:
        """The parts', by slices."""
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        """The parts', by slices."""
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
