"""The half-normal distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tenon_distributions.distributions.continuous.normal import Normal
from tenon_distributions.distributions.folded import Folded

if TYPE_CHECKING:
    from tenon import Tensor


class HalfNormal(Folded):
    """The distribution of ``|x|`` for normal ``x`` of mean 0 and standard deviation ``scale``."""

    base_dist: Normal

    def __init__(self, scale: Tensor | float, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, validate_args=False), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (1 - 2 / math.pi)
