"""The logistic-normal distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.continuous.normal import Normal
from tenon_distributions.distributions.transformed_distribution import TransformedDistribution
from tenon_distributions.distributions.transforms import StickBreakingTransform

if TYPE_CHECKING:
    from tenon import Tensor


class LogisticNormal(TransformedDistribution):
    """The distribution of normal vectors after stick breaking, on a simplex."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The means of the normal distributions."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviations of the normal distributions."""
        return self.base_dist.base_dist.scale
