"""Student's t distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.continuous.chi2 import Chi2
from tenon_distributions.distributions.distribution import Distribution
from tenon_distributions.distributions.utils import _standard_normal

if TYPE_CHECKING:
    from tenon import Tensor


class StudentT(Distribution):
    """The distribution of ``loc + scale * z / sqrt(c / df)``, with normal ``z`` and chi-squared ``c``."""

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(
        self,
        df: Tensor | float,
        loc: Tensor | float = 0.0,
        scale: Tensor | float = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        self._set_broadcast(validate_args, df=df, loc=loc, scale=scale)
        self._chi2 = Chi2(self.df)

    @property
    def mean(self) -> Tensor:
        return tenon.where(self.df <= 1, math.nan, self.loc)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        finite = self.scale.pow(2) * self.df / (self.df - 2)
        return tenon.where(self.df > 2, finite, tenon.where(self.df > 1, math.inf, math.nan).to(self.df))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        z = _standard_normal(shape, self.df.dtype, self.df.device)
        return self.loc + self.scale * (z * tenon.rsqrt(self._chi2.rsample(sample_shape) / self.df))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        y = (value - self.loc) / self.scale
        return (
            -0.5 * (self.df + 1.0) * tenon.log1p(y**2.0 / self.df) - self.scale.log() - self._log_beta_term()
        )

    def _log_beta_term(self) -> Tensor:
        """Return ``log(sqrt(df) B(1/2, df/2))``."""
        half = 0.5 * self.df
        beta = tenon.lgamma(half) + 0.5 * math.log(math.pi) - tenon.lgamma(half + 0.5)
        return 0.5 * self.df.log() + beta

    def entropy(self) -> Tensor:
        half = 0.5 * self.df
        spread = (half + 0.5) * (tenon.digamma(half + 0.5) - tenon.digamma(half))
        return self.scale.log() + spread + self._log_beta_term()
