"""The base class of continuous distributions that approach discrete ones as a temperature falls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from tenon_distributions.distributions.transformed_distribution import TransformedDistribution

if TYPE_CHECKING:
    from tenon import Tensor
    from tenon_distributions.distributions.distribution import Distribution
    from tenon_distributions.distributions.transform import Transform


class Relaxed(TransformedDistribution):
    """A transform of a base distribution with a temperature and the parameters ``probs`` or ``logits``."""

    has_rsample = True
    #: The distribution with the temperature, and the transform of its samples.
    _base: ClassVar[Callable[..., Distribution]]
    _transform: ClassVar[type[Transform]]

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        base = self._base(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, self._transform(), validate_args=validate_args)

    @property
    def temperature(self) -> Tensor | float:
        """The temperature: samples approach the discrete distribution's as it approaches 0."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """The log-odds or log-probabilities of the discrete distribution."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities of the discrete distribution."""
        return self.base_dist.probs
