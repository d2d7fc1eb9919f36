"""The base class of distributions of the absolute value of a symmetric variable."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import tenon
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.transformed_distribution import TransformedDistribution
from tenon_distributions.distributions.transforms import AbsTransform

if TYPE_CHECKING:
    from tenon import Tensor
    from tenon_distributions.distributions.location_scale import LocationScale


class Folded(TransformedDistribution):
    """The distribution of ``|x|`` for ``x`` of ``symmetric``, whose mode is 0."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    base_dist: LocationScale

    def __init__(self, symmetric: LocationScale, validate_args: bool | None = None) -> None:
        super().__init__(symmetric, AbsTransform(), validate_args=validate_args)

    @property
    def scale(self) -> Tensor:
        """The scale of the symmetric distribution."""
        return self.base_dist.scale

    @property
    def mode(self) -> Tensor:
        return tenon.zeros_like(self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return tenon.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)
