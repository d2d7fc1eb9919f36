"""One-hot categorical distributions, with and without straight-through gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon.nn.functional import one_hot
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.discrete.categorical import CategoricalVector

if TYPE_CHECKING:
    from tenon import Tensor


class OneHotCategorical(CategoricalVector):
    """One-hot vectors: 1 at the index that ``Categorical`` draws, else 0."""

    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        self._set_categorical(probs, logits, validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return one_hot(self._categorical.mode, self.event_shape[0]).to(self.probs)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return one_hot(self._categorical.sample(sample_shape), self.event_shape[0]).to(self.probs.detach())

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self.event_shape[0]
        values = tenon.eye(n, dtype=self._param.dtype, device=self._param.device)
        values = values.reshape(n, *(1,) * len(self.batch_shape), n)
        return values.expand(n, *self.batch_shape, n) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot vectors whose gradients are passed straight through to ``probs``.

    Bengio, Léonard and Courville, 2013.
    """

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn, probs = self.sample(sample_shape), self.probs
        return drawn + (probs - probs.detach())
