"""The Dirichlet distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon.errors import ArgumentError
from tenon.nn.functional import one_hot
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.drawing import _sample_dirichlet
from tenon_distributions.distributions.drawing import dirichlet_backward as _Dirichlet_backward  # noqa: F401 - PyTorch's name
from tenon_distributions.distributions.exp_family import ExponentialFamily

if TYPE_CHECKING:
    from tenon import Tensor


def _log_beta(a: Tensor) -> Tensor:
    """Return the logarithm of the beta function over the last axis: the log-normaliser."""
    return a.lgamma().sum(-1) - tenon.lgamma(a.sum(-1))


class Dirichlet(ExponentialFamily):
    """The Dirichlet distribution on the simplex (last axis); samples have implicit gradients."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ArgumentError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        excess = (self.concentration - 1).clamp(min=0.0)
        corner = one_hot(self.concentration.argmax(-1), self.event_shape[0]).to(excess)
        at_corner = (self.concentration < 1).all(-1, keepdim=True)
        return tenon.where(at_corner, corner, excess / excess.sum(-1, True))

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return _sample_dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return tenon.xlogy(self.concentration - 1.0, value).sum(-1) - _log_beta(self.concentration)

    def entropy(self) -> Tensor:
        a = self.concentration
        total, k = a.sum(-1), a.shape[-1]
        spread = (k - total) * tenon.digamma(total) + ((a - 1.0) * tenon.digamma(a)).sum(-1)
        return _log_beta(a) - spread

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.concentration - 1,)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return _log_beta(x + 1)
