"""The Wishart distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon.errors import ArgumentError
from tenon.extend import verifying
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.continuous.chi2 import Chi2
from tenon_distributions.distributions.exp_family import ExponentialFamily
from tenon_distributions.distributions.multivariate.multivariate_normal import (
    _half_log_det,
    _inverse_of_tril,
    cholesky_factor,
    select_matrix,
)
from tenon_distributions.distributions.utils import lazy_property

if TYPE_CHECKING:
    from tenon import Size, Tensor
    from tenon_distributions.distributions.distribution import Distribution

#: How often samples that are singular by rounding are drawn again.
_MAX_REDRAWS = 3


class Wishart(ExponentialFamily):
    """The distribution of the sum of outer products of ``df`` normal vectors of the given covariance.

    Sampling follows Bartlett's decomposition (Odell and Feiveson, 1966).
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        df: Tensor | float,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = select_matrix(covariance_matrix, precision_matrix, scale_tril)
        degrees = tenon.as_tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch = tenon.broadcast_shapes(degrees.shape, matrix.shape[:-2])
        event = matrix.shape[-2:]
        with verifying():
            too_few = bool((degrees <= event[-1] - 1).any())
        if too_few:
            raise ArgumentError(
                f"Value of df={degrees} expected to be greater than ndim - 1 = {event[-1] - 1}."
            )
        self.df = degrees.expand(batch)
        setattr(self, name, matrix.expand((*batch, -1, -1)))
        super().__init__(batch, event, validate_args=validate_args)
        self._unbroadcasted_scale_tril = cholesky_factor(name, matrix)
        steps = tenon.arange(event[-1], dtype=degrees.dtype, device=degrees.device)
        self._dist_chi2 = Chi2(self.df.unsqueeze(-1) - steps)

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self._event_shape[-1] - 1),
        }

    def _expand_component(self, name: str, part: Distribution, shape: Size) -> Distribution:
        return part.expand((*shape, self._event_shape[-1]))

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The covariance's Cholesky factor."""
        return self._unbroadcasted_scale_tril.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        tril = self._unbroadcasted_scale_tril
        return (tril @ tril.mT).expand(self._batch_shape + self._event_shape)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The covariance's inverse."""
        inverse = _inverse_of_tril(self._unbroadcasted_scale_tril)
        return (inverse.mT @ inverse).expand(self._batch_shape + self._event_shape)

    @property
    def _df_as_matrix(self) -> Tensor:
        return self.df.reshape((*self._batch_shape, 1, 1))

    @property
    def mean(self) -> Tensor:
        return self._df_as_matrix * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self._df_as_matrix - self._event_shape[-1] - 1
        return tenon.where(factor > 0, factor, math.nan) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self._df_as_matrix * (v.pow(2) + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _bartlett_sampling(self, sample_shape: Sequence[int] = ()) -> Tensor:
        roots = self._dist_chi2.rsample(sample_shape).clamp(min=tenon.finfo(self.df.dtype).tiny).sqrt()
        shape = self._extended_shape(sample_shape)
        noise = tenon.randn(shape, dtype=roots.dtype, device=roots.device).tril(-1) + roots.diag_embed()
        factor = self._unbroadcasted_scale_tril @ noise
        return factor @ factor.mT

    def rsample(self, sample_shape: Sequence[int] = (), max_try_correction: int | None = None) -> Tensor:
        """Draw samples; redraw at most ``max_try_correction`` times those that rounding made singular."""
        sample = self._bartlett_sampling(sample_shape)
        for _ in range(_MAX_REDRAWS if max_try_correction is None else max_try_correction):
            valid = self.support.check(sample.detach())
            if valid.all():
                break
            sample = tenon.where(valid[..., None, None], sample, self._bartlett_sampling(sample_shape))
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
        digammas = tenon.digamma((nu.unsqueeze(-1) - steps) / 2).sum(-1)
        size = (p + 1) * (_half_log_det(self._unbroadcasted_scale_tril) + 0.5 * p * math.log(2))
        return size + tenon.mvlgamma(nu / 2, p) - 0.5 * (nu - p - 1) * digammas + 0.5 * nu * p

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -0.5 * self.precision_matrix, 0.5 * (self.df - self._event_shape[-1] - 1)

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        p = x.shape[-1]
        half = y + 0.5 * (p + 1)
        return half * (p * math.log(2) - tenon.linalg.slogdet(-2 * x).logabsdet) + tenon.mvlgamma(half, p)
