"""The chi-squared distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.continuous.gamma import Gamma

if TYPE_CHECKING:
    from tenon import Tensor


class Chi2(Gamma):
    """The distribution of the sum of the squares of ``df`` standard normal variables."""

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Tensor | float, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Tensor:
        """Degrees of freedom."""
        return self.concentration * 2
