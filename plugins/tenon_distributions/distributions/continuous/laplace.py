"""The Laplace distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon_distributions.distributions.location_scale import LocationScale

if TYPE_CHECKING:
    from tenon import Tensor


class Laplace(LocationScale):
    """The Laplace distribution: ``loc`` plus or minus an exponential variable of mean ``scale``."""

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.pow(2)

    @property
    def stddev(self) -> Tensor:
        return 2**0.5 * self.scale

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        info = tenon.finfo(self.loc.dtype)
        u = self.loc.new_empty(self._extended_shape(sample_shape)).uniform_(info.eps - 1, 1)
        return self.loc - self.scale * u.sign() * tenon.log1p(-u.abs().clamp(min=info.tiny))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return -tenon.log(2 * self.scale) - tenon.abs(value - self.loc) / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        z = value - self.loc
        return 0.5 - 0.5 * z.sign() * tenon.expm1(-z.abs() / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * tenon.log1p(-2 * term.abs())

    def entropy(self) -> Tensor:
        return 1 + tenon.log(2 * self.scale)
