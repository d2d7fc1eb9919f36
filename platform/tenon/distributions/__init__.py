"""Probability distributions over tensors: ``torch.distributions``.

A distribution draws (``sample``, and ``rsample`` with gradients by its parameters) and weighs (``log_prob``,
``entropy``, ``kl_divergence``). ``distribution.py`` says what all share, ``constraints.py`` where parameters
and samples lie, ``transforms.py`` what maps one onto another. Numbers come from the default generator; gamma
numbers and their kin, Poisson and binomial ones are not PyTorch's for a seed (``random/rejection.py``).
"""

from tenon.distributions import constraints as constraints
from tenon.distributions import kl_across_families as kl_across_families
from tenon.distributions import kl_same_family as kl_same_family
from tenon.distributions import transforms
from tenon.distributions.bernoulli import Bernoulli
from tenon.distributions.beta import Beta
from tenon.distributions.binomial import Binomial
from tenon.distributions.categorical import Categorical
from tenon.distributions.cauchy import Cauchy
from tenon.distributions.chi2 import Chi2
from tenon.distributions.constraint_registry import biject_to, transform_to
from tenon.distributions.continuous_bernoulli import ContinuousBernoulli
from tenon.distributions.dirichlet import Dirichlet
from tenon.distributions.distribution import Distribution
from tenon.distributions.exp_family import ExponentialFamily
from tenon.distributions.exponential import Exponential
from tenon.distributions.fishersnedecor import FisherSnedecor
from tenon.distributions.gamma import Gamma
from tenon.distributions.generalized_pareto import GeneralizedPareto
from tenon.distributions.geometric import Geometric
from tenon.distributions.gumbel import Gumbel
from tenon.distributions.half_cauchy import HalfCauchy
from tenon.distributions.half_normal import HalfNormal
from tenon.distributions.independent import Independent
from tenon.distributions.inverse_gamma import InverseGamma
from tenon.distributions.kl import kl_divergence, register_kl
from tenon.distributions.kumaraswamy import Kumaraswamy
from tenon.distributions.laplace import Laplace
from tenon.distributions.lkj_cholesky import LKJCholesky
from tenon.distributions.log_normal import LogNormal
from tenon.distributions.logistic_normal import LogisticNormal
from tenon.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal
from tenon.distributions.mixture_same_family import MixtureSameFamily
from tenon.distributions.multinomial import Multinomial
from tenon.distributions.multivariate_normal import MultivariateNormal
from tenon.distributions.negative_binomial import NegativeBinomial
from tenon.distributions.normal import Normal
from tenon.distributions.one_hot_categorical import OneHotCategorical, OneHotCategoricalStraightThrough
from tenon.distributions.pareto import Pareto
from tenon.distributions.poisson import Poisson
from tenon.distributions.relaxed_bernoulli import RelaxedBernoulli
from tenon.distributions.relaxed_categorical import RelaxedOneHotCategorical
from tenon.distributions.studentT import StudentT
from tenon.distributions.transformed_distribution import TransformedDistribution
from tenon.distributions.transforms import *  # noqa: F403 - PyTorch has them here, too
from tenon.distributions.uniform import Uniform
from tenon.distributions.von_mises import VonMises
from tenon.distributions.weibull import Weibull
from tenon.distributions.wishart import Wishart

__all__ = [
    "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "ContinuousBernoulli", "Dirichlet",
    "Distribution", "Exponential", "ExponentialFamily", "FisherSnedecor", "Gamma", "GeneralizedPareto",
    "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent", "InverseGamma", "Kumaraswamy",
    "LKJCholesky", "Laplace", "LogNormal", "LogisticNormal", "LowRankMultivariateNormal",
    "MixtureSameFamily", "Multinomial", "MultivariateNormal", "NegativeBinomial", "Normal",
    "OneHotCategorical", "OneHotCategoricalStraightThrough", "Pareto", "Poisson", "RelaxedBernoulli",
    "RelaxedOneHotCategorical", "StudentT", "TransformedDistribution", "Uniform", "VonMises", "Weibull",
    "Wishart", "biject_to", "kl_divergence", "register_kl", "transform_to",
    *(name for name in transforms.__all__ if not name.startswith("_")),
]  # fmt: skip
