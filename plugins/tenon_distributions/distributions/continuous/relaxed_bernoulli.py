"""Bernoulli numbers relaxed into (0, 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tenon
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.discrete.bernoulli import ProbsOrLogits
from tenon_distributions.distributions.transformed_distribution import TransformedDistribution
from tenon_distributions.distributions.transforms import SigmoidTransform
from tenon_distributions.distributions.utils import clamp_probs

if TYPE_CHECKING:
    from tenon import Tensor


class LogitRelaxedBernoulli(ProbsOrLogits):
    """Log-odds of ``RelaxedBernoulli`` (Maddison, Mnih and Teh, 2017; Jang, Gu and Poole, 2017)."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True

    def __init__(
        self,
        temperature: Tensor,
        probs: Tensor | None = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self._temperature = temperature
        self._given(probs, logits, validate_args)

    @property
    def temperature(self) -> Tensor:
        """What log-odds are divided by; it is no part of the batch."""
        return self._temperature

    def rsample(self, sample_shape: Any = ()) -> Any:
        probs = clamp_probs(self.probs.expand(self._extended_shape(sample_shape)))
        u = clamp_probs(tenon.rand(probs.shape, dtype=probs.dtype, device=probs.device))
        return (u.log() - (-u).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = tenon.broadcast_tensors(self.logits, value)
        gap = logits - value * self.temperature
        return tenon.as_tensor(self.temperature).log() + gap - 2 * gap.exp().log1p()


class RelaxedBernoulli(TransformedDistribution):
    """Numbers in (0, 1) that become 0 and 1 as ``temperature`` falls, with gradients by the probability."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self,
        temperature: Tensor,
        probs: Tensor | None = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Any:
        """How far samples lie from 0 and 1."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """The log-odds."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The probability of what is relaxed."""
        return self.base_dist.probs
