"""The negative binomial distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon.nn.functional import logsigmoid
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.continuous.gamma import Gamma
from tenon_distributions.distributions.discrete.bernoulli import ProbsOrLogits
from tenon_distributions.distributions.drawing import poisson
from tenon_distributions.distributions.utils import lazy_property

if TYPE_CHECKING:
    from tenon import Tensor


class NegativeBinomial(ProbsOrLogits):
    """The number of successes, each of one probability, before ``total_count`` failures."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self,
        total_count: Tensor | int,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._set_count_and_probs_or_logits(total_count, probs, logits, validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * tenon.exp(self.logits)

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / tenon.sigmoid(-self.logits)

    @lazy_property
    def _gamma(self) -> Gamma:
        """The distribution of the rate: counts are Poisson distributed with a gamma distributed rate."""
        return Gamma(self.total_count, tenon.exp(-self.logits), validate_args=False)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with tenon.no_grad():
            rate = self._gamma.sample(sample_shape)
            return poisson(tenon.where(self.total_count > 0, rate, 0.0))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n = self.total_count
        powers = n * logsigmoid(-self.logits) + value * logsigmoid(self.logits)
        log_coefficient = tenon.lgamma(n + value) - tenon.lgamma(1.0 + value) - tenon.lgamma(n)
        return powers + log_coefficient.masked_fill(n + value == 0.0, 0.0)
