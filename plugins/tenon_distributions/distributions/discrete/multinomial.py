"""The multinomial distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon.errors import UnsupportedError
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.discrete.binomial import Binomial
from tenon_distributions.distributions.discrete.categorical import CategoricalVector

if TYPE_CHECKING:
    from tenon import Tensor


class Multinomial(CategoricalVector):
    """The counts of each category in ``total_count`` draws, a number that all of the batch has in common."""

    total_count: int

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise UnsupportedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._set_categorical(probs, logits, validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = tenon.Size(sample_shape)
        drawn = self._categorical.sample((self.total_count, *shape)).movedim(0, -1)
        counts = self.probs.new_zeros(self._extended_shape(shape))
        return counts.scatter_add_(-1, drawn, tenon.ones_like(drawn, dtype=counts.dtype)).detach()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = tenon.broadcast_tensors(self.logits, value)
        log_coefficient = tenon.lgamma(value.sum(-1) + 1) - tenon.lgamma(value + 1).sum(-1)
        logits = logits.masked_fill((value == 0) & (logits == -tenon.inf), 0.0)  # 0 log 0 is 0
        return log_coefficient + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        """Return the entropy, from the expected log-factorials of counts, each binomial."""
        n = self.logits.new_tensor(float(self.total_count))
        binomial = Binomial(self.total_count, probs=self.probs, validate_args=False)
        counts = binomial.enumerate_support(expand=False)[1:]
        factorials = binomial.log_prob(counts).exp() * tenon.lgamma(counts + 1)
        return n * self._categorical.entropy() - tenon.lgamma(n + 1) + factorials.sum((0, -1))
