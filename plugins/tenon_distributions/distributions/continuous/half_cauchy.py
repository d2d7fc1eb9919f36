"""The half-Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

import tenon
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.continuous.cauchy import Cauchy
from tenon_distributions.distributions.transformed_distribution import TransformedDistribution
from tenon_distributions.distributions.transforms import AbsTransform


class HalfCauchy(TransformedDistribution):
    """Distances of Cauchy numbers of that ``scale`` from their median."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    @property
    def scale(self) -> Any:
        """The scale of the distribution of both signs."""
        return self.base_dist.scale

    @property
    def mean(self) -> Any:
        return tenon.full(self._extended_shape(), math.inf, dtype=self.scale.dtype, device=self.scale.device)

    @property
    def variance(self) -> Any:
        return self.base_dist.variance

    @property
    def mode(self) -> Any:
        return tenon.zeros_like(self.scale)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return tenon.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Any) -> Any:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Any:
        return self.base_dist.entropy() - math.log(2)
