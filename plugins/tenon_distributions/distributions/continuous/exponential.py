"""The exponential distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.exp_family import ExponentialFamily

if TYPE_CHECKING:
    from tenon import Tensor


class Exponential(ExponentialFamily):
    """The distribution of the time between events that occur at ``rate`` per unit of time."""

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, rate: Tensor | float, validate_args: bool | None = None) -> None:
        self._set_broadcast(validate_args, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    stddev = mean

    @property
    def mode(self) -> Tensor:
        return tenon.zeros_like(self.rate)

    @property
    def variance(self) -> Tensor:
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.rate.new_empty(self._extended_shape(sample_shape)).exponential_() / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return 1 - tenon.exp(-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        return -tenon.log1p(-value) / self.rate

    def entropy(self) -> Tensor:
        return 1.0 - self.rate.log()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (-self.rate,)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return -tenon.log(-x)
