"""The binomial distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon.errors import UnsupportedError
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.discrete.bernoulli import ProbsOrLogits
from tenon_distributions.distributions.drawing import binomial

if TYPE_CHECKING:
    from tenon import Tensor


class Binomial(ProbsOrLogits):
    """The number of successes in ``total_count`` independent trials of one probability."""

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True

    def __init__(
        self,
        total_count: Tensor | int = 1,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._set_count_and_probs_or_logits(total_count, probs, logits, validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with tenon.no_grad():
            return binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n, logits = self.total_count, self.logits
        log_coefficient = tenon.lgamma(n + 1) - tenon.lgamma(value + 1) - tenon.lgamma(n - value + 1)
        return log_coefficient + value * logits - n * tenon.logaddexp(logits, tenon.zeros_like(logits))

    def entropy(self) -> Tensor:
        self._common_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = self._common_count("enumerate_support")
        values = tenon.arange(1 + count, dtype=self._param.dtype, device=self._param.device)
        return self._as_support(values, expand)

    def _common_count(self, method: str) -> int:
        """Return the number of trials that the batch has in common; if there is none, refuse ``method``."""
        count = int(self.total_count.max())
        if not self.total_count.min() == count:
            raise UnsupportedError(f"Inhomogeneous total count not supported by `{method}`.")
        return count
