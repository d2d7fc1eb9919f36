"""The Gumbel distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import tenon
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.continuous.uniform import Uniform
from tenon_distributions.distributions.transformed_distribution import TransformedDistribution
from tenon_distributions.distributions.transforms import AffineTransform, ExpTransform
from tenon_distributions.distributions.utils import broadcast_all, euler_constant

if TYPE_CHECKING:
    from tenon import Tensor


class Gumbel(TransformedDistribution):
    """The limiting distribution of maxima: ``loc - scale log(-log(u))`` for uniform ``u``."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        info = tenon.finfo(self.loc.dtype)
        low = tenon.full_like(self.loc, info.tiny)
        base = Uniform(low, tenon.full_like(self.loc, 1 - info.eps), validate_args=validate_args)
        steps = [
            ExpTransform().inv,
            AffineTransform(loc=0, scale=-tenon.ones_like(self.scale)),
            ExpTransform().inv,
            AffineTransform(loc=self.loc, scale=-self.scale),
        ]
        super().__init__(base, steps, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * euler_constant

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return (math.pi / math.sqrt(6)) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev.pow(2)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        y = (self.loc - value) / self.scale
        return (y - y.exp()) - self.scale.log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + euler_constant)
