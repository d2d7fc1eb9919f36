"""The half-Cauchy distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import tenon
from tenon_distributions.distributions.continuous.cauchy import Cauchy
from tenon_distributions.distributions.folded import Folded

if TYPE_CHECKING:
    from tenon import Tensor


class HalfCauchy(Folded):
    """The distribution of ``|x|`` for Cauchy ``x`` of median 0 and of this ``scale``."""

    def __init__(self, scale: Tensor | float, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, validate_args=False), validate_args)

    @property
    def mean(self) -> Tensor:
        return tenon.full(self._extended_shape(), math.inf, dtype=self.scale.dtype, device=self.scale.device)

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance
