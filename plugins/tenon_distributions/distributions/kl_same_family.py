"""Divergences of two distributions of one family; formulae by integration."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

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
def _bernoulli(p: Any, q: Any) -> Tensor:
    hit = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    hit = tenon.where(p.probs == 0, 0.0, tenon.where(q.probs == 0, math.inf, hit))
    miss = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    return hit + tenon.where(p.probs == 1, 0.0, tenon.where(q.probs == 1, math.inf, miss))


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Any:
    if (p.total_count < q.total_count).any():
        raise UnsupportedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    kl = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return tenon.where(p.total_count > q.total_count, math.inf, p.total_count * kl)


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = tenon.where(p.probs == 0, 0.0, tenon.where(q.probs == 0, math.inf, terms))
    return terms.sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: Any, q: Any) -> Any:
    return _categorical(p._categorical, q._categorical)


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Any:
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    expected_logs = a.digamma() - a.sum(-1, True).digamma()
    return _log_beta(b) - _log_beta(a) + ((a - b) * expected_logs).sum(-1)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Any:
    # Chyzak and Nielsen, 2019
    square = (p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)
    return square.log() - (4 * p.scale * q.scale).log()


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: Any, q: Any) -> Tensor:
    own = p._cont_bern_log_norm() + (-p.probs).log1p()
    other = q._cont_bern_log_norm() + (-q.probs).log1p()
    return p.mean * (p.logits - q.logits) + own - other


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    ways = tenon.lgamma(b) - tenon.lgamma(a) + (a - b) * tenon.digamma(a)
    return b * (p.rate / q.rate).log() + ways + (q.rate - p.rate) * (a / p.rate)


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Any:
    ratio, gap = p.scale / q.scale, (q.loc - p.loc) / q.scale
    return (
        ratio * euler_constant - ratio.log() - gap + (gap + (1 + ratio).lgamma()).exp() - (1 + euler_constant)
    )


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Any:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise UnsupportedError(
            f"KL of Independents with {p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims} "
            "reinterpreted axes is not defined: reinterpret as many in both."
        )
    return _sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Any:
    ratio, apart = p.scale / q.scale, (p.loc - q.loc).abs()
    return apart / q.scale + ratio * (-apart / p.scale).exp() - ratio.log() - 1


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Tensor:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Any:
    ratio = q.alpha / p.alpha
    kl = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return tenon.where(p.scale < q.scale, math.inf, kl)


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Any:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Any:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise UnsupportedError(
            "KL of transformed distributions is only known where both have equal transforms and shapes."
        )
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Tensor:
    kl = ((q.high - q.low) / (p.high - p.low)).log()
    return tenon.where((q.low > p.low) | (q.high < p.high), math.inf, kl)


def _check_sizes(p: Any, q: Any) -> None:
    if p.event_shape != q.event_shape:
        raise ArgumentError(
            "KL-divergence between two Multivariate Normals with different event shapes "
            f"({tuple(p.event_shape)} and {tuple(q.event_shape)}) cannot be computed"
        )


def _log_det(d: Any) -> Tensor:
    if isinstance(d, MultivariateNormal):
        return 2 * _half_log_det(d._unbroadcasted_scale_tril)
    factor, diagonal = d._parts
    return _batch_lowrank_logdet(factor, diagonal, d._capacitance_tril)


def _squares(x: Tensor) -> Tensor:
    return x.square().sum((-2, -1))


def _roots(d: Any) -> list[Any]:
    """Matrices whose products with their transposes sum to the covariance."""
    if isinstance(d, MultivariateNormal):
        return [d._unbroadcasted_scale_tril]
    return [d._unbroadcasted_cov_factor, d._unbroadcasted_cov_diag.sqrt().diag_embed()]


def _by_covariance(p: Any, q: Any) -> Tensor:
    """``(tr(S_q^-1 S_p) + d^T S_q^-1 d + log det S_q / det S_p - n) / 2``."""
    _check_sizes(p, q)
    apart = q.loc - p.loc
    trace: Any = 0
    if isinstance(q, MultivariateNormal):
        tril = q._unbroadcasted_scale_tril
        square = _batch_mahalanobis(tril, apart)
        for root in _roots(p):
            trace = trace + _squares(tenon.linalg.solve_triangular(tril, root, upper=False))
    else:
        factor, diag = q._parts
        square = _batch_lowrank_mahalanobis(factor, diag, apart, q._capacitance_tril)
        weighted = factor.mT / diag.unsqueeze(-2)
        inner = tenon.linalg.solve_triangular(q._capacitance_tril, weighted, upper=False)
        for root in _roots(p):
            trace = trace + _squares(root * diag.rsqrt().unsqueeze(-1)) - _squares(inner @ root)
    return 0.5 * (trace + square + _log_det(q) - _log_det(p) - p.event_shape[0])


for _p in (MultivariateNormal, LowRankMultivariateNormal):
    for _q in (MultivariateNormal, LowRankMultivariateNormal):
        register_kl(_p, _q)(_by_covariance)
