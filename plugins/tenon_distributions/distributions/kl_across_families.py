"""KL divergences between two families: the expected ``-q.log_prob`` under ``p``, less ``p``'s entropy.

They need few expectations under ``p``: of ``x`` and its square, of ``log x``, of ``exp(-x / s)``. The
divergence is infinite where ``q`` has probability 0 on part of ``p``'s support.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import tenon
from tenon_distributions.distributions.continuous.beta import Beta
from tenon_distributions.distributions.continuous.continuous_bernoulli import ContinuousBernoulli
from tenon_distributions.distributions.continuous.exponential import Exponential
from tenon_distributions.distributions.continuous.gamma import Gamma
from tenon_distributions.distributions.continuous.gumbel import Gumbel
from tenon_distributions.distributions.continuous.laplace import Laplace
from tenon_distributions.distributions.continuous.normal import Normal
from tenon_distributions.distributions.continuous.pareto import Pareto
from tenon_distributions.distributions.continuous.uniform import Uniform
from tenon_distributions.distributions.discrete.bernoulli import Bernoulli
from tenon_distributions.distributions.discrete.binomial import Binomial
from tenon_distributions.distributions.discrete.poisson import Poisson
from tenon_distributions.distributions.kl import register_kl
from tenon_distributions.distributions.utils import euler_constant

if TYPE_CHECKING:
    from tenon import Tensor
    from tenon_distributions.distributions.distribution import Distribution

#: Pairs of infinite divergence, by ``p``: the support of ``p`` is not contained in that of any such ``q``.
_INFINITE: dict[type[Distribution], tuple[type[Distribution], ...]] = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}


def _infinite(p: Distribution, q: Distribution) -> Tensor:
    return tenon.full_like(p.mean, math.inf)


def _x_log_x(x: Tensor) -> Tensor:
    return tenon.xlogy(x, x)


def _mean_log(p: Beta | Exponential | Pareto | Uniform) -> Tensor:
    """Return the expected ``log x``."""
    if isinstance(p, Beta):
        return p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    if isinstance(p, Exponential):
        return -euler_constant - p.rate.log()
    if isinstance(p, Pareto):
        return p.scale.log() + p.alpha.reciprocal()
    return (_x_log_x(p.high) - _x_log_x(p.low)) / (p.high - p.low) - 1


def _log_mean_exp(p: Exponential | Gamma | Normal | Uniform, s: Tensor) -> Tensor:
    """Return the logarithm of the expected ``exp(-x / s)``."""
    if isinstance(p, Normal):
        return -p.loc / s + 0.5 * (p.scale / s).pow(2)
    if isinstance(p, Uniform):
        width = (p.high - p.low) / s
        return -p.low / s + (-(-width).expm1()).log() - width.log()
    power = p.concentration if isinstance(p, Gamma) else 1.0
    return -power * (1 / (p.rate * s)).log1p()


def _to_exponential(p: Distribution, q: Exponential) -> Tensor:
    return q.rate * p.mean - q.rate.log() - p.entropy()


def _to_normal(p: Distribution, q: Normal) -> Tensor:
    spread = (p.variance + (p.mean - q.loc).pow(2)) / (2 * q.variance)
    return spread + q.scale.log() + 0.5 * math.log(2 * math.pi) - p.entropy()


def _to_gamma(p: Beta | Exponential | Pareto | Uniform, q: Gamma) -> Tensor:
    a = q.concentration
    log_prob = a * q.rate.log() - tenon.lgamma(a) + (a - 1) * _mean_log(p) - q.rate * p.mean
    return -log_prob - p.entropy()


def _to_gumbel(p: Exponential | Gamma | Normal | Uniform, q: Gumbel) -> Tensor:
    y = (q.loc - p.mean) / q.scale
    return q.scale.log() - y + (q.loc / q.scale + _log_mean_exp(p, q.scale)).exp() - p.entropy()


def _to_continuous_bernoulli(p: Beta | Uniform, q: ContinuousBernoulli) -> Tensor:
    log_prob = p.mean * q.logits + (-q.probs).log1p() + q._cont_bern_log_norm()
    return -log_prob - p.entropy()


for _p, _others in _INFINITE.items():
    for _q in _others:
        register_kl(_p, _q)(_infinite)
for _p in (Beta, ContinuousBernoulli, Gamma, Pareto):
    register_kl(_p, Exponential)(_to_exponential)
for _p in (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Pareto, Uniform):
    register_kl(_p, Normal)(_to_normal)
for _p in (Beta, Exponential, Pareto):
    register_kl(_p, Gamma)(_to_gamma)
for _p in (Exponential, Gamma, Normal, Uniform):
    register_kl(_p, Gumbel)(_to_gumbel)
register_kl(Beta, ContinuousBernoulli)(_to_continuous_bernoulli)


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return q.rate - p.probs * q.rate.log() - p.entropy()


@register_kl(Beta, Uniform)
@register_kl(ContinuousBernoulli, Uniform)
def _unit_uniform(p: Beta | ContinuousBernoulli, q: Uniform) -> Tensor:
    kl = (q.high - q.low).log() - p.entropy()
    return tenon.where((q.high < 1) | (q.low > 0), math.inf, kl)


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Tensor:
    difference = p.loc - q.loc
    z = difference / p.scale
    distance = math.sqrt(2 / math.pi) * p.scale * (-0.5 * z * z).exp() + difference * tenon.erf(
        z / math.sqrt(2)
    )
    return distance / q.scale + (2 * q.scale).log() - p.entropy()


@register_kl(Uniform, Beta)
def _uniform_beta(p: Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    left, right = 1 - p.high, 1 - p.low
    mean_log_rest = (_x_log_x(right) - _x_log_x(left)) / (p.high - p.low) - 1
    log_norm = a.lgamma() + b.lgamma() - (a + b).lgamma()
    kl = log_norm - (a - 1) * _mean_log(p) - (b - 1) * mean_log_rest - p.entropy()
    return tenon.where((p.high > 1) | (p.low < 0), math.inf, kl)


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous_bernoulli(p: Uniform, q: ContinuousBernoulli) -> Tensor:
    return tenon.where((p.high > 1) | (p.low < 0), math.inf, _to_continuous_bernoulli(p, q))


@register_kl(Uniform, Exponential)
def _uniform_exponential(p: Uniform, q: Exponential) -> Tensor:
    return tenon.where(p.low < 0, math.inf, _to_exponential(p, q))


@register_kl(Uniform, Gamma)
def _uniform_gamma(p: Uniform, q: Gamma) -> Tensor:
    return tenon.where(p.low < 0, math.inf, _to_gamma(p, q))


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Uniform, q: Pareto) -> Tensor:
    log_prob = q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * _mean_log(p)
    return tenon.where(p.low < q.scale, math.inf, -log_prob - p.entropy())
