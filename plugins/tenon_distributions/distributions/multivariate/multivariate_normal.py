"""The multivariate normal distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon.errors import ArgumentError, OptionError
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.distribution import Distribution
from tenon_distributions.distributions.utils import _standard_normal, lazy_property

if TYPE_CHECKING:
    from tenon import Tensor

_MATRIX_NAMES = ("covariance_matrix", "precision_matrix", "scale_tril")


def _batch_mv(matrix: Tensor, vector: Tensor) -> Tensor:
    """Return the matrix-vector product over the batch axes."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def _batch_mahalanobis(tril: Tensor, x: Tensor) -> Tensor:
    """Return ``x^T (L L^T)^-1 x`` for lower triangular ``L``."""
    return tenon.linalg.solve_triangular(tril, x.unsqueeze(-1), upper=False).squeeze(-1).square().sum(-1)


def _half_log_det(tril: Tensor) -> Tensor:
    """Return half the log-determinant of the matrix whose Cholesky factor is ``tril``."""
    return tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _inverse_of_tril(tril: Tensor) -> Tensor:
    unit = tenon.eye(tril.shape[-1], dtype=tril.dtype, device=tril.device)
    return tenon.linalg.solve_triangular(tril, unit, upper=False)


def _precision_to_scale_tril(precision: Tensor) -> Tensor:
    """Return the Cholesky factor of the inverse of ``precision``."""
    # Flipped along both axes, an upper triangular factor becomes a lower triangular one.
    flipped = tenon.linalg.cholesky(precision.flip((-2, -1)))
    return _inverse_of_tril(flipped.flip((-2, -1)).mT)


class MultivariateNormal(Distribution):
    """The normal distribution of vectors, given its covariance, its precision or its Cholesky factor."""

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ArgumentError("loc must be at least one-dimensional.")
        name, matrix = select_matrix(covariance_matrix, precision_matrix, scale_tril)
        batch = tenon.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand((*batch, -1, -1)))
        self.loc = loc.expand((*batch, -1))
        super().__init__(batch, self.loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = cholesky_factor(name, matrix)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The covariance's Cholesky factor."""
        shape = (*self._batch_shape, *self._event_shape, *self._event_shape)
        return self._unbroadcasted_scale_tril.expand(shape)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        tril = self._unbroadcasted_scale_tril
        return (tril @ tril.mT).expand((*self._batch_shape, *self._event_shape, *self._event_shape))

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The covariance's inverse."""
        inverse = _inverse_of_tril(self._unbroadcasted_scale_tril)
        return (inverse.mT @ inverse).expand((*self._batch_shape, *self._event_shape, *self._event_shape))

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        return self._unbroadcasted_scale_tril.square().sum(-1).expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        eps = _standard_normal(self._extended_shape(sample_shape), self.loc.dtype, self.loc.device)
        return self.loc + _batch_mv(self._unbroadcasted_scale_tril, eps)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        tril = self._unbroadcasted_scale_tril
        square = _batch_mahalanobis(tril, value - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + square) - _half_log_det(tril)

    def entropy(self) -> Tensor:
        n = self._event_shape[0]
        entropy = 0.5 * n * (1.0 + math.log(2 * math.pi)) + _half_log_det(self._unbroadcasted_scale_tril)
        return entropy.expand(self._batch_shape)


def select_matrix(*matrices: Tensor | None) -> tuple[str, Tensor]:
    """Return the name and the value of the one of covariance, precision and Cholesky factor that is given."""
    specified = {n: m for n, m in zip(_MATRIX_NAMES, matrices, strict=True) if m is not None}
    if len(specified) != 1:
        raise OptionError(
            "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified."
        )
    ((name, matrix),) = specified.items()
    if matrix.dim() < 2:
        raise ArgumentError(
            f"{name.replace('tril', 'tril matrix')} must be at least two-dimensional, with optional leading "
            "batch dimensions"
        )
    return name, matrix


def cholesky_factor(name: str, matrix: Tensor) -> Tensor:
    """Return the covariance's Cholesky factor, computed from ``matrix``, the parameter ``name``."""
    if name == "scale_tril":
        return matrix
    return tenon.linalg.cholesky(matrix) if name == "covariance_matrix" else _precision_to_scale_tril(matrix)
