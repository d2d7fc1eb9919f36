"""The Weibull distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tenon
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.continuous.exponential import Exponential
from tenon_distributions.distributions.transformed_distribution import TransformedDistribution
from tenon_distributions.distributions.transforms import AffineTransform, PowerTransform
from tenon_distributions.distributions.utils import broadcast_all, euler_constant

if TYPE_CHECKING:
    from tenon import Tensor


class Weibull(TransformedDistribution):
    """The distribution of ``scale * x ** (1 / concentration)`` for exponential ``x`` of rate 1."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(
        self, scale: Tensor | float, concentration: Tensor | float, validate_args: bool | None = None
    ) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(tenon.ones_like(self.scale), validate_args=validate_args)
        steps = [
            PowerTransform(exponent=self.concentration_reciprocal),
            AffineTransform(loc=0, scale=self.scale),
        ]
        super().__init__(base, steps, validate_args=validate_args)

    def _log_moment(self, power: int) -> Tensor:
        """Return the logarithm of the moment of order ``power`` at scale 1."""
        return tenon.lgamma(1 + power * self.concentration_reciprocal)

    @property
    def mean(self) -> Tensor:
        return self.scale * self._log_moment(1).exp()

    @property
    def mode(self) -> Tensor:
        return self.scale * ((self.concentration - 1) / self.concentration) ** self.concentration_reciprocal

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (self._log_moment(2).exp() - (2 * self._log_moment(1)).exp())

    def entropy(self) -> Tensor:
        inverse = self.concentration_reciprocal
        return euler_constant * (1 - inverse) + (self.scale * inverse).log() + 1
