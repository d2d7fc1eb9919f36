"""The Pareto distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.continuous.exponential import Exponential
from tenon_distributions.distributions.transformed_distribution import TransformedDistribution
from tenon_distributions.distributions.transforms import AffineTransform, ExpTransform
from tenon_distributions.distributions.utils import broadcast_all

if TYPE_CHECKING:
    from tenon import Tensor


class Pareto(TransformedDistribution):
    """The Pareto distribution above ``scale``, with a power-law tail of exponent ``alpha``."""

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(
        self, scale: Tensor | float, alpha: Tensor | float, validate_args: bool | None = None
    ) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=validate_args)
        steps = [ExpTransform(), AffineTransform(loc=0, scale=self.scale)]
        super().__init__(base, steps, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp(min=1)  # alpha <= 1: infinite
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2)
        return self.scale.pow(2) * a / ((a - 1).pow(2) * (a - 2))

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())
