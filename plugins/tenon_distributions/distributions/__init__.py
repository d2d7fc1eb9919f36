"""Probability distributions over tensors: ``torch.distributions``.

A distribution draws samples (``sample``, and ``rsample`` differentiably) and computes ``log_prob``,
``entropy`` and ``kl_divergence``. ``distribution.py`` has the base class, ``constraints.py`` the sets of
valid parameters and samples, ``transforms.py`` maps between such sets. Random numbers come from the default
generator; for a seed, samples based on gamma, Poisson and binomial ones differ from PyTorch's
(``tenon.random.rejection``).
"""

# PyTorch has each distribution as a module: tenon.distributions.normal.
from tenon_distributions.distributions import constraints as constraints
from tenon_distributions.distributions import kl_across_families as kl_across_families
from tenon_distributions.distributions import kl_same_family as kl_same_family
from tenon_distributions.distributions import transforms
from tenon_distributions.distributions.constraint_registry import biject_to, transform_to
from tenon_distributions.distributions.continuous import beta as beta
from tenon_distributions.distributions.continuous import cauchy as cauchy
from tenon_distributions.distributions.continuous import chi2 as chi2
from tenon_distributions.distributions.continuous import continuous_bernoulli as continuous_bernoulli
from tenon_distributions.distributions.continuous import exponential as exponential
from tenon_distributions.distributions.continuous import fishersnedecor as fishersnedecor
from tenon_distributions.distributions.continuous import gamma as gamma
from tenon_distributions.distributions.continuous import generalized_pareto as generalized_pareto
from tenon_distributions.distributions.continuous import gumbel as gumbel
from tenon_distributions.distributions.continuous import half_cauchy as half_cauchy
from tenon_distributions.distributions.continuous import half_normal as half_normal
from tenon_distributions.distributions.continuous import inverse_gamma as inverse_gamma
from tenon_distributions.distributions.continuous import kumaraswamy as kumaraswamy
from tenon_distributions.distributions.continuous import laplace as laplace
from tenon_distributions.distributions.continuous import log_normal as log_normal
from tenon_distributions.distributions.continuous import normal as normal
from tenon_distributions.distributions.continuous import pareto as pareto
from tenon_distributions.distributions.continuous import relaxed_bernoulli as relaxed_bernoulli
from tenon_distributions.distributions.continuous import studentT as studentT
from tenon_distributions.distributions.continuous import uniform as uniform
from tenon_distributions.distributions.continuous import von_mises as von_mises
from tenon_distributions.distributions.continuous import weibull as weibull
from tenon_distributions.distributions.continuous.beta import Beta
from tenon_distributions.distributions.continuous.cauchy import Cauchy
from tenon_distributions.distributions.continuous.chi2 import Chi2
from tenon_distributions.distributions.continuous.continuous_bernoulli import ContinuousBernoulli
from tenon_distributions.distributions.continuous.exponential import Exponential
from tenon_distributions.distributions.continuous.fishersnedecor import FisherSnedecor
from tenon_distributions.distributions.continuous.gamma import Gamma
from tenon_distributions.distributions.continuous.generalized_pareto import GeneralizedPareto
from tenon_distributions.distributions.continuous.gumbel import Gumbel
from tenon_distributions.distributions.continuous.half_cauchy import HalfCauchy
from tenon_distributions.distributions.continuous.half_normal import HalfNormal
from tenon_distributions.distributions.continuous.inverse_gamma import InverseGamma
from tenon_distributions.distributions.continuous.kumaraswamy import Kumaraswamy
from tenon_distributions.distributions.continuous.laplace import Laplace
from tenon_distributions.distributions.continuous.log_normal import LogNormal
from tenon_distributions.distributions.continuous.normal import Normal
from tenon_distributions.distributions.continuous.pareto import Pareto
from tenon_distributions.distributions.continuous.relaxed_bernoulli import RelaxedBernoulli
from tenon_distributions.distributions.continuous.studentT import StudentT
from tenon_distributions.distributions.continuous.uniform import Uniform
from tenon_distributions.distributions.continuous.von_mises import VonMises
from tenon_distributions.distributions.continuous.weibull import Weibull
from tenon_distributions.distributions.discrete import bernoulli as bernoulli
from tenon_distributions.distributions.discrete import binomial as binomial
from tenon_distributions.distributions.discrete import categorical as categorical
from tenon_distributions.distributions.discrete import geometric as geometric
from tenon_distributions.distributions.discrete import multinomial as multinomial
from tenon_distributions.distributions.discrete import negative_binomial as negative_binomial
from tenon_distributions.distributions.discrete import one_hot_categorical as one_hot_categorical
from tenon_distributions.distributions.discrete import poisson as poisson
from tenon_distributions.distributions.discrete.bernoulli import Bernoulli
from tenon_distributions.distributions.discrete.binomial import Binomial
from tenon_distributions.distributions.discrete.categorical import Categorical
from tenon_distributions.distributions.discrete.geometric import Geometric
from tenon_distributions.distributions.discrete.multinomial import Multinomial
from tenon_distributions.distributions.discrete.negative_binomial import NegativeBinomial
from tenon_distributions.distributions.discrete.one_hot_categorical import (
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from tenon_distributions.distributions.discrete.poisson import Poisson
from tenon_distributions.distributions.distribution import Distribution
from tenon_distributions.distributions.exp_family import ExponentialFamily
from tenon_distributions.distributions.independent import Independent
from tenon_distributions.distributions.kl import kl_divergence, register_kl
from tenon_distributions.distributions.mixture_same_family import MixtureSameFamily
from tenon_distributions.distributions.multivariate import dirichlet as dirichlet
from tenon_distributions.distributions.multivariate import lkj_cholesky as lkj_cholesky
from tenon_distributions.distributions.multivariate import logistic_normal as logistic_normal
from tenon_distributions.distributions.multivariate import (
    lowrank_multivariate_normal as lowrank_multivariate_normal,
)
from tenon_distributions.distributions.multivariate import multivariate_normal as multivariate_normal
from tenon_distributions.distributions.multivariate import relaxed_categorical as relaxed_categorical
from tenon_distributions.distributions.multivariate import wishart as wishart
from tenon_distributions.distributions.multivariate.dirichlet import Dirichlet
from tenon_distributions.distributions.multivariate.lkj_cholesky import LKJCholesky
from tenon_distributions.distributions.multivariate.logistic_normal import LogisticNormal
from tenon_distributions.distributions.multivariate.lowrank_multivariate_normal import (
    LowRankMultivariateNormal,
)
from tenon_distributions.distributions.multivariate.multivariate_normal import MultivariateNormal
from tenon_distributions.distributions.multivariate.relaxed_categorical import RelaxedOneHotCategorical
from tenon_distributions.distributions.multivariate.wishart import Wishart
from tenon_distributions.distributions.transformed_distribution import TransformedDistribution
from tenon_distributions.distributions.transforms import *  # noqa: F403 - PyTorch has them here, too

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
