"""Fisher and Snedecor's F distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.continuous.gamma import Gamma
from tenon_distributions.distributions.distribution import Distribution

if TYPE_CHECKING:
    from tenon import Tensor


class FisherSnedecor(Distribution):
    """The F distribution: the ratio of two chi-squared variables, each over its degrees of freedom."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Tensor | float, df2: Tensor | float, validate_args: bool | None = None) -> None:
        self._set_broadcast(validate_args, df1=df1, df2=df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2)

    @property
    def mean(self) -> Tensor:
        return tenon.where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan)

    @property
    def mode(self) -> Tensor:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return tenon.where(self.df1 > 2, mode, math.nan)

    @property
    def variance(self) -> Tensor:
        a, b = self.df1, self.df2
        variance = 2 * b.pow(2) * (a + b - 2) / (a * (b - 2).pow(2) * (b - 4))
        return tenon.where(b > 4, variance, math.nan)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        tiny = tenon.finfo(self.df2.dtype).tiny
        numerator, denominator = (g.rsample(sample_shape) for g in (self._gamma1, self._gamma2))
        return (numerator / denominator.clamp(min=tiny)).clamp(min=tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a, b, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        beta = tenon.lgamma(a) + tenon.lgamma(b) - tenon.lgamma(a + b)
        powers = a * ratio.log() + (a - 1) * value.log() - (a + b) * tenon.log1p(ratio * value)
        return powers - beta
