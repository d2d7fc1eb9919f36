"""The gamma distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.drawing import _standard_gamma
from tenon_distributions.distributions.exp_family import ExponentialFamily

if TYPE_CHECKING:
    from tenon import Tensor


class Gamma(ExponentialFamily):
    """The distribution of the waiting time for ``concentration`` events at ``rate``.

    Samples are differentiable by implicit reparametrisation.
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self, concentration: Tensor | float, rate: Tensor | float, validate_args: bool | None = None
    ) -> None:
        self._set_broadcast(validate_args, concentration=concentration, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        value = _standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        value.detach().clamp_(
            min=tenon.finfo(value.dtype).tiny
        )  # 0 is outside the support; the clamp has no gradient
        return value

    def log_prob(self, value: Tensor) -> Tensor:
        value = tenon.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        if self._validate_args:
            self._validate_sample(value)
        a, rate = self.concentration, self.rate
        return tenon.xlogy(a, rate) + tenon.xlogy(a - 1, value) - rate * value - tenon.lgamma(a)

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return tenon.special.gammainc(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + tenon.lgamma(a) + (1.0 - a) * tenon.digamma(a)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return tenon.lgamma(x + 1) + (x + 1) * tenon.log(-y.reciprocal())
