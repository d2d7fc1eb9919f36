"""The log-normal distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.continuous.normal import Normal
from tenon_distributions.distributions.transformed_distribution import TransformedDistribution
from tenon_distributions.distributions.transforms import ExpTransform

if TYPE_CHECKING:
    from tenon import Tensor


class LogNormal(TransformedDistribution):
    """The distribution of ``exp(x)`` for normal ``x`` of mean ``loc`` and standard deviation ``scale``."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args), ExpTransform(), validate_args)

    @property
    def loc(self) -> Tensor:
        """The mean of the logarithm."""
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviation of the logarithm."""
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale.pow(2) / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        square = self.scale.pow(2)
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc
