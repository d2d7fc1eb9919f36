"""The multivariate normal distribution whose covariance is the sum of a low-rank and a diagonal matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon.errors import ArgumentError
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.distribution import Distribution
from tenon_distributions.distributions.multivariate.multivariate_normal import (
    _batch_mahalanobis,
    _batch_mv,
    _half_log_det,
)
from tenon_distributions.distributions.utils import _standard_normal, lazy_property

if TYPE_CHECKING:
    from tenon import Tensor


def _batch_capacitance_tril(factor: Tensor, diag: Tensor) -> Tensor:
    """Return the Cholesky factor of ``I + W^T D^-1 W``, whose size is the rank of ``W``."""
    weighted = factor.mT / diag.unsqueeze(-2)
    return tenon.linalg.cholesky(
        weighted @ factor + tenon.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    )


def _batch_lowrank_logdet(factor: Tensor, diag: Tensor, tril: Tensor) -> Tensor:
    """Return ``log det (W W^T + D)`` from the determinant of the capacitance matrix."""
    return 2 * _half_log_det(tril) + diag.log().sum(-1)


def _batch_lowrank_mahalanobis(factor: Tensor, diag: Tensor, x: Tensor, tril: Tensor) -> Tensor:
    """Return ``x^T (W W^T + D)^-1 x`` by Woodbury's formula."""
    small = _batch_mv(factor.mT / diag.unsqueeze(-2), x)
    return (x.square() / diag).sum(-1) - _batch_mahalanobis(tril, small)


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of covariance ``cov_factor cov_factor^T + diag(cov_diag)``.

    Only matrices whose size is the rank of ``cov_factor`` are factorised, by Woodbury's formula.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None
    ) -> None:
        if loc.dim() < 1:
            raise ArgumentError("loc must be at least one-dimensional.")
        if cov_factor.dim() < 2:
            raise ArgumentError(
                "cov_factor must be at least two-dimensional, with optional leading batch dimensions"
            )
        if cov_factor.shape[-2] != loc.shape[-1]:
            raise ArgumentError(f"cov_factor must be a batch of matrices with shape {loc.shape[-1]} x m")
        if cov_diag.shape[-1:] != loc.shape[-1:]:
            raise ArgumentError(f"cov_diag must be a batch of vectors with shape {loc.shape[-1:]}")
        batch = tenon.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        self.loc = loc.expand((*batch, -1))
        self.cov_factor = cov_factor.expand((*batch, -1, -1))
        self.cov_diag = cov_diag.expand((*batch, -1))
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        self._capacitance_tril = _batch_capacitance_tril(cov_factor, cov_diag)
        super().__init__(batch, loc.shape[-1:], validate_args=validate_args)

    @property
    def _factor_and_diagonal(self) -> tuple[Tensor, Tensor]:
        """The covariance's factor and diagonal, not expanded to the batch shape."""
        return self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag

    def _expand_to_batch(self, matrix: Tensor) -> Tensor:
        return matrix.expand((*self._batch_shape, *self._event_shape, *self._event_shape))

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The covariance's Cholesky factor, of full size."""
        factor, diag = self._factor_and_diagonal
        root = diag.sqrt().unsqueeze(-1)
        scaled = factor / root
        unit = tenon.eye(self._event_shape[0], dtype=diag.dtype, device=diag.device)
        return self._expand_to_batch(root * tenon.linalg.cholesky(scaled @ scaled.mT + unit))

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        factor, diag = self._factor_and_diagonal
        return self._expand_to_batch(factor @ factor.mT + diag.diag_embed())

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The covariance's inverse."""
        factor, diag = self._factor_and_diagonal
        weighted = factor.mT / diag.unsqueeze(-2)
        solved = tenon.linalg.solve_triangular(self._capacitance_tril, weighted, upper=False)
        return self._expand_to_batch(diag.reciprocal().diag_embed() - solved.mT @ solved)

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @lazy_property
    def variance(self) -> Tensor:
        """The covariance's diagonal."""
        factor, diag = self._factor_and_diagonal
        return (factor.square().sum(-1) + diag).expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        factor, diag = self._factor_and_diagonal
        small = _standard_normal((*shape[:-1], factor.shape[-1]), self.loc.dtype, self.loc.device)
        own = _standard_normal(shape, self.loc.dtype, self.loc.device)
        return self.loc + _batch_mv(factor, small) + diag.sqrt() * own

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        parts = self._factor_and_diagonal
        square = _batch_lowrank_mahalanobis(*parts, value - self.loc, self._capacitance_tril)
        log_det = _batch_lowrank_logdet(*parts, self._capacitance_tril)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + log_det + square)

    def entropy(self) -> Tensor:
        log_det = _batch_lowrank_logdet(*self._factor_and_diagonal, self._capacitance_tril)
        entropy = 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + log_det)
        return entropy.expand(self._batch_shape)
