"""The generalised Pareto distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.distribution import Distribution

if TYPE_CHECKING:
    from tenon import Tensor


class GeneralizedPareto(Distribution):
    """The distribution of values that exceed a high threshold ``loc``.

    Its tail is bounded (``concentration`` below 0), exponential (0) or a power law (above 0).
    """

    arg_constraints = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True

    def __init__(
        self,
        loc: Tensor | float,
        scale: Tensor | float,
        concentration: Tensor | float,
        validate_args: bool | None = None,
    ) -> None:
        self._set_broadcast(validate_args, loc=loc, scale=scale, concentration=concentration)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        bounded = self.concentration < 0
        end = self.loc - self.scale / tenon.where(bounded, self.concentration, -1.0)
        return constraints.interval(self.loc, tenon.where(bounded, end, math.inf))

    def _exponential_tail(self) -> tuple[Tensor, Tensor]:
        """Return where the concentration is 0, and the concentration with ones in these places."""
        zero = tenon.isclose(self.concentration, tenon.zeros_like(self.concentration))
        return zero, tenon.where(zero, 1.0, self.concentration)

    @property
    def mean(self) -> Tensor:
        finite = self.concentration < 1
        rest = 1 - tenon.where(finite, self.concentration, 0.0)
        return tenon.where(finite, self.loc + self.scale / rest, math.inf)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        finite = self.concentration < 0.5
        c = tenon.where(finite, self.concentration, 0.0)
        return tenon.where(finite, self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c)), math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(tenon.rand(shape, dtype=self.loc.dtype, device=self.loc.device))

    def _log_survival(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        zero, c = self._exponential_tail()
        return -tenon.where(zero, z, tenon.log1p(c * z) / c)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        zero, _ = self._exponential_tail()
        power = 1 + tenon.where(zero, 0.0, self.concentration)
        return power * self._log_survival(value) - self.scale.log()

    def log_survival_function(self, value: Tensor) -> Tensor:
        """Return ``log(1 - cdf(value))``."""
        if self._validate_args:
            self._validate_sample(value)
        return self._log_survival(value)

    def log_cdf(self, value: Tensor) -> Tensor:
        """Return ``log(cdf(value))``."""
        return tenon.log1p(-self.log_survival_function(value).exp())

    def cdf(self, value: Tensor) -> Tensor:
        return -self.log_survival_function(value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        zero, c = self._exponential_tail()
        log_left = tenon.log1p(-value)
        return self.loc + self.scale * tenon.where(zero, -log_left, tenon.expm1(-c * log_left) / c)

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1
