"""The base class of scalar distributions with a location and a scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.distribution import Distribution

if TYPE_CHECKING:
    from tenon import Tensor


class LocationScale(Distribution):
    """The distribution of ``loc + scale * z`` for a standard variable ``z`` on the real line with mode 0."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None) -> None:
        self._set_broadcast(validate_args, loc=loc, scale=scale)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc
