"""The Cauchy distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon_distributions.distributions.location_scale import LocationScale

if TYPE_CHECKING:
    from tenon import Tensor


class Cauchy(LocationScale):
    """The Cauchy distribution of median ``loc`` and half-width ``scale`` at half maximum; it has no mean.

    >>> Cauchy(0.0, 1.0).icdf(tenon.tensor(0.75))
    tensor(1.)
    """

    @property
    def mean(self) -> Tensor:
        return tenon.full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        return tenon.full_like(self.loc, math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.loc + self.loc.new_empty(self._extended_shape(sample_shape)).cauchy_() * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return -math.log(math.pi) - self.scale.log() - (((value - self.loc) / self.scale) ** 2).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return tenon.atan((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return tenon.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()
