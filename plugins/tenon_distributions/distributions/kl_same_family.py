"""KL divergences of two distributions of one family, in closed form."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import tenon
from tenon.errors import ArgumentError, UnsupportedError
from tenon.nn.functional import softplus
from tenon_distributions.distributions.continuous.beta import Beta
from tenon_distributions.distributions.continuous.cauchy import Cauchy
from tenon_distributions.distributions.continuous.continuous_bernoulli import ContinuousBernoulli
from tenon_distributions.distributions.continuous.exponential import Exponential
from tenon_distributions.distributions.continuous.gamma import Gamma
from tenon_distributions.distributions.continuous.gumbel import Gumbel
from tenon_distributions.distributions.continuous.half_normal import HalfNormal
from tenon_distributions.distributions.continuous.laplace import Laplace
from tenon_distributions.distributions.continuous.normal import Normal
from tenon_distributions.distributions.continuous.pareto import Pareto
from tenon_distributions.distributions.continuous.uniform import Uniform
from tenon_distributions.distributions.discrete.bernoulli import Bernoulli
from tenon_distributions.distributions.discrete.binomial import Binomial
from tenon_distributions.distributions.discrete.categorical import Categorical
from tenon_distributions.distributions.discrete.geometric import Geometric
from tenon_distributions.distributions.discrete.one_hot_categorical import OneHotCategorical
from tenon_distributions.distributions.discrete.poisson import Poisson
from tenon_distributions.distributions.independent import Independent
from tenon_distributions.distributions.kl import kl_divergence, register_kl
from tenon_distributions.distributions.multivariate.dirichlet import Dirichlet, _log_beta
from tenon_distributions.distributions.multivariate.lowrank_multivariate_normal import (
    LowRankMultivariateNormal,
    _batch_lowrank_logdet,
    _batch_lowrank_mahalanobis,
)
from tenon_distributions.distributions.multivariate.multivariate_normal import (
    MultivariateNormal,
    _batch_mahalanobis,
    _half_log_det,
)
from tenon_distributions.distributions.transformed_distribution import TransformedDistribution
from tenon_distributions.distributions.utils import _sum_rightmost, euler_constant

if TYPE_CHECKING:
    from tenon import Tensor


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    hit = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    hit = tenon.where(p.probs == 0, 0.0, tenon.where(q.probs == 0, math.inf, hit))
    miss = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    return hit + tenon.where(p.probs == 1, 0.0, tenon.where(q.probs == 1, math.inf, miss))


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    if (p.total_count < q.total_count).any():
        raise UnsupportedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    kl = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return tenon.where(p.total_count > q.total_count, math.inf, p.total_count * kl)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = tenon.where(p.probs == 0, 0.0, tenon.where(q.probs == 0, math.inf, terms))
    return terms.sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    expected_logs = a.digamma() - a.sum(-1, True).digamma()
    return _log_beta(b) - _log_beta(a) + ((a - b) * expected_logs).sum(-1)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    # Chyzak and Nielsen, 2019
    square = (p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)
    return square.log() - (4 * p.scale * q.scale).log()


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    log_norm_p = p._cont_bern_log_norm() + (-p.probs).log1p()
    log_norm_q = q._cont_bern_log_norm() + (-q.probs).log1p()
    return p.mean * (p.logits - q.logits) + log_norm_p - log_norm_q


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    log_gammas = tenon.lgamma(b) - tenon.lgamma(a) + (a - b) * tenon.digamma(a)
    return b * (p.rate / q.rate).log() + log_gammas + (q.rate - p.rate) * (a / p.rate)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, gap = p.scale / q.scale, (q.loc - p.loc) / q.scale
    return (
        ratio * euler_constant - ratio.log() - gap + (gap + (1 + ratio).lgamma()).exp() - (1 + euler_constant)
    )


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise UnsupportedError(
            f"KL of Independents with {p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims} "
            "reinterpreted axes is not defined: reinterpret as many in both."
        )
    return _sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, difference = p.scale / q.scale, (p.loc - q.loc).abs()
    return difference / q.scale + ratio * (-difference / p.scale).exp() - ratio.log() - 1


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    kl = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return tenon.where(p.scale < q.scale, math.inf, kl)


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise UnsupportedError(
            "KL of transformed distributions is only known where both have equal transforms and shapes."
        )
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    kl = ((q.high - q.low) / (p.high - p.low)).log()
    return tenon.where((q.low > p.low) | (q.high < p.high), math.inf, kl)


#: Normal vectors, in one of two parametrisations of the covariance.
_NormalVector: TypeAlias = MultivariateNormal | LowRankMultivariateNormal


def _check_sizes(p: _NormalVector, q: _NormalVector) -> None:
    if p.event_shape != q.event_shape:
        raise ArgumentError(
            "KL-divergence between two Multivariate Normals with different event shapes "
            f"({tuple(p.event_shape)} and {tuple(q.event_shape)}) cannot be computed"
        )


def _log_det(d: _NormalVector) -> Tensor:
    """Return the log-determinant of the covariance."""
    if isinstance(d, MultivariateNormal):
        return 2 * _half_log_det(d._unbroadcasted_scale_tril)
    factor, diagonal = d._factor_and_diagonal
    return _batch_lowrank_logdet(factor, diagonal, d._capacitance_tril)


def _squared_norm(x: Tensor) -> Tensor:
    """Return the sum of the squares of each matrix."""
    return x.square().sum((-2, -1))


def _covariance_factors(d: _NormalVector) -> list[Tensor]:
    """Return matrices whose products with their transposes sum to the covariance."""
    if isinstance(d, MultivariateNormal):
        return [d._unbroadcasted_scale_tril]
    return [d._unbroadcasted_cov_factor, d._unbroadcasted_cov_diag.sqrt().diag_embed()]


def _normal_vectors(p: _NormalVector, q: _NormalVector) -> Tensor:
    """Return ``(tr(S_q^-1 S_p) + d^T S_q^-1 d + log det S_q / det S_p - n) / 2``."""
    _check_sizes(p, q)
    difference = q.loc - p.loc
    trace: Tensor | int = 0
    if isinstance(q, MultivariateNormal):
        tril = q._unbroadcasted_scale_tril
        square = _batch_mahalanobis(tril, difference)
        for factor_p in _covariance_factors(p):
            trace = trace + _squared_norm(tenon.linalg.solve_triangular(tril, factor_p, upper=False))
    else:
        factor, diag = q._factor_and_diagonal
        square = _batch_lowrank_mahalanobis(factor, diag, difference, q._capacitance_tril)
        weighted = factor.mT / diag.unsqueeze(-2)
        inner = tenon.linalg.solve_triangular(q._capacitance_tril, weighted, upper=False)
        for factor_p in _covariance_factors(p):
            trace = (
                trace + _squared_norm(factor_p * diag.rsqrt().unsqueeze(-1)) - _squared_norm(inner @ factor_p)
            )
    return 0.5 * (trace + square + _log_det(q) - _log_det(p) - p.event_shape[0])


for _p in (MultivariateNormal, LowRankMultivariateNormal):
    for _q in (MultivariateNormal, LowRankMultivariateNormal):
        register_kl(_p, _q)(_normal_vectors)
