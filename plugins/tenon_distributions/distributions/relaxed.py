"""The base class of continuous distributions that approach discrete ones as a temperature falls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon_distributions.distributions.transformed_distribution import TransformedDistribution

if TYPE_CHECKING:
    from tenon import Tensor


class Relaxed(TransformedDistribution):
    """A transform of a base distribution with a temperature and the parameters ``probs`` or ``logits``."""

    has_rsample = True

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
