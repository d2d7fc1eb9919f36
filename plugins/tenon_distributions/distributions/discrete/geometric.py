"""The geometric distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon.errors import ArgumentError
from tenon.extend import verifying
from tenon.nn.functional import binary_cross_entropy_with_logits
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.discrete.bernoulli import ProbsOrLogits

if TYPE_CHECKING:
    from tenon import Tensor


class Geometric(ProbsOrLogits):
    """The number of failures before the first success, from 0 (``Tensor.geometric_`` counts from 1)."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(
        self,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._set_probs_or_logits(probs, logits, validate_args)
        with verifying():
            positive = not self._validate_args or probs is None or bool((self.probs > 0).all())
        if not positive:
            raise ArgumentError(
                f"Expected parameter probs ({type(self.probs).__name__} of shape {tuple(self.probs.shape)}) "
                f"of distribution {self!r} to be positive but found invalid values:\n"
                f"{self.probs.detach()[~(self.probs > 0)]}"
            )

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return tenon.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with tenon.no_grad():
            u = self.probs.new_empty(shape).uniform_().clamp(min=tenon.finfo(self.probs.dtype).tiny)
            return (u.log() / (-self.probs.expand(shape)).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value, probs = tenon.broadcast_tensors(value, self.probs)
        safe_probs = tenon.where((probs == 1) & (value == 0), 0.0, probs)  # 0 log 0 is 0
        return value * (-safe_probs).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs
