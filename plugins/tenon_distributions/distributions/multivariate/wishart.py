"""The Wishart distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tenon
from tenon.errors import ArgumentError
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.continuous.chi2 import Chi2
from tenon_distributions.distributions.exp_family import ExponentialFamily
from tenon_distributions.distributions.multivariate.multivariate_normal import (
    _half_log_det,
    _inverse_of_tril,
    factor_of,
    one_matrix,
)
from tenon_distributions.distributions.utils import lazy_property

if TYPE_CHECKING:
    from tenon import Tensor

#: How often samples that rounding made singular are drawn again.
_TRIES = 3


class Wishart(ExponentialFamily):
    """Covariance matrices: sums of the outer products of ``df`` normal vectors of the covariance given.

    Samples by Bartlett's decomposition (Odell and Feiveson, 1966).
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Any = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = one_matrix(covariance_matrix, precision_matrix, scale_tril)
        df = tenon.as_tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch = tenon.broadcast_shapes(df.shape, matrix.shape[:-2])
        event = matrix.shape[-2:]
        if (df <= event[-1] - 1).any():
            raise ArgumentError(f"Value of df={df} expected to be greater than ndim - 1 = {event[-1] - 1}.")
        self.df = df.expand(batch)
        setattr(self, name, matrix.expand((*batch, -1, -1)))
        super().__init__(batch, event, validate_args=validate_args)
        self._unbroadcasted_scale_tril = factor_of(name, matrix)
        steps = tenon.arange(event[-1], dtype=df.dtype, device=df.device)
        self._dist_chi2 = Chi2(self.df.unsqueeze(-1) - steps)

    @property
    def arg_constraints(self) -> dict[str, Any]:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self._event_shape[-1] - 1),
        }

    def _expand_part(self, name: str, part: Any, shape: Any) -> Any:
        return part.expand((*shape, self._event_shape[-1]))

    @lazy_property
    def scale_tril(self) -> Any:
        """The covariance's Cholesky factor."""
        return self._unbroadcasted_scale_tril.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        tril = self._unbroadcasted_scale_tril
        return (tril @ tril.mT).expand(self._batch_shape + self._event_shape)

    @lazy_property
    def precision_matrix(self) -> Any:
        """The covariance's inverse."""
        inverse = _inverse_of_tril(self._unbroadcasted_scale_tril)
        return (inverse.mT @ inverse).expand(self._batch_shape + self._event_shape)

    @property
    def _wide_df(self) -> Tensor:
        return self.df.reshape((*self._batch_shape, 1, 1))

    @property
    def mean(self) -> Tensor:
        return self._wide_df * self.covariance_matrix

    @property
    def mode(self) -> Any:
        factor = self._wide_df - self._event_shape[-1] - 1
        return tenon.where(factor > 0, factor, math.nan) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self._wide_df * (v.pow(2) + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _bartlett_sampling(self, sample_shape: Sequence[int] = ()) -> Tensor:
        roots = self._dist_chi2.rsample(sample_shape).clamp(min=tenon.finfo(self.df.dtype).tiny).sqrt()
        shape = self._extended_shape(sample_shape)
        noise = tenon.randn(shape, dtype=roots.dtype, device=roots.device).tril(-1) + roots.diag_embed()
        factor = self._unbroadcasted_scale_tril @ noise
        return factor @ factor.mT

    def rsample(self, sample_shape: Sequence[int] = (), max_try_correction: int | None = None) -> Tensor:
        """Matrices that are positive definite in floating point, too, as far as so many tries find them."""
        sample = self._bartlett_sampling(sample_shape)
        for _ in range(_TRIES if max_try_correction is None else max_try_correction):
            good = self.support.check(sample.detach())
            if good.all():
                break
            sample = tenon.where(good[..., None, None], sample, self._bartlett_sampling(sample_shape))
        return sample

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        nu, p, tril = self.df, self._event_shape[-1], self._unbroadcasted_scale_tril
        trace = tenon.cholesky_solve(value, tril).diagonal(dim1=-2, dim2=-1).sum(-1)
        log_norm = nu * (0.5 * p * math.log(2) + _half_log_det(tril)) + tenon.mvlgamma(nu / 2, p)
        return 0.5 * (nu - p - 1) * tenon.linalg.slogdet(value).logabsdet - 0.5 * trace - log_norm

    def entropy(self) -> Tensor:
        nu, p = self.df, self._event_shape[-1]
        steps = tenon.arange(p, dtype=nu.dtype, device=nu.device)
        slope = tenon.digamma((nu.unsqueeze(-1) - steps) / 2).sum(-1)
        size = (p + 1) * (_half_log_det(self._unbroadcasted_scale_tril) + 0.5 * p * math.log(2))
        return size + tenon.mvlgamma(nu / 2, p) - 0.5 * (nu - p - 1) * slope + 0.5 * nu * p

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return -0.5 * self.precision_matrix, 0.5 * (self.df - self._event_shape[-1] - 1)

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        p = x.shape[-1]
        half = y + 0.5 * (p + 1)
        return half * (p * math.log(2) - tenon.linalg.slogdet(-2 * x).logabsdet) + tenon.mvlgamma(half, p)
