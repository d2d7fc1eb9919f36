"""The relaxed Bernoulli distribution, on (0, 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.discrete.bernoulli import ProbsOrLogits
from tenon_distributions.distributions.relaxed import Relaxed
from tenon_distributions.distributions.transforms import SigmoidTransform
from tenon_distributions.distributions.utils import clamp_probs

if TYPE_CHECKING:
    from tenon import Tensor


class LogitRelaxedBernoulli(ProbsOrLogits):
    """The distribution of the log-odds of ``RelaxedBernoulli``.

    Maddison, Mnih and Teh, 2017; Jang, Gu and Poole, 2017.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._temperature = temperature
        self._set_probs_or_logits(probs, logits, validate_args)

    @property
    def temperature(self) -> Tensor | float:
        """The temperature, by which log-odds are divided; its shape does not affect the batch shape."""
        return self._temperature

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        probs = clamp_probs(self.probs.expand(self._extended_shape(sample_shape)))
        u = clamp_probs(tenon.rand(probs.shape, dtype=probs.dtype, device=probs.device))
        return (u.log() - (-u).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = tenon.broadcast_tensors(self.logits, value)
        difference = logits - value * self.temperature
        return tenon.as_tensor(self.temperature).log() + difference - 2 * difference.exp().log1p()


class RelaxedBernoulli(Relaxed):
    """Differentiable samples in (0, 1) that approach 0 and 1 as ``temperature`` falls."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    _base = LogitRelaxedBernoulli
    _transform = SigmoidTransform
