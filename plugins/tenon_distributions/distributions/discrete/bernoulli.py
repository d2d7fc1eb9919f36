"""The Bernoulli distribution, and the base class of those parametrised by a probability or log-odds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon.nn.functional import binary_cross_entropy_with_logits
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.distribution import Distribution, select_parameter
from tenon_distributions.distributions.exp_family import ExponentialFamily
from tenon_distributions.distributions.utils import (
    broadcast_all,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
)

if TYPE_CHECKING:
    from tenon import Size, Tensor


class ProbsOrLogits(Distribution):
    """A distribution given ``probs`` or log-odds ``logits``, of which the other is computed lazily."""

    def _set_probs_or_logits(
        self,
        probs: Tensor | float | None,
        logits: Tensor | float | None,
        validate_args: bool | None,
        **others: Tensor | float,
    ) -> None:
        """Initialize the distribution with one of ``probs`` and ``logits``, broadcast with ``others``."""
        selected: tuple[str, Tensor | float] = select_parameter(probs, logits)
        name, value = selected
        self._set_broadcast(validate_args, **others, **{name: value})

    def _set_count_and_probs_or_logits(
        self,
        total_count: Tensor | int,
        probs: Tensor | float | None,
        logits: Tensor | float | None,
        validate_args: bool | None,
    ) -> None:
        """Initialize the distribution with a count, too, converted to the dtype of the other parameter."""
        selected: tuple[str, Tensor | float] = select_parameter(probs, logits)
        name, parameter = selected
        count, value = broadcast_all(total_count, parameter)
        value = value if value.is_floating_point() else value.to(tenon.get_default_dtype())
        self._set_broadcast(validate_args, total_count=count.to(value.dtype), **{name: value})

    @property
    def _param(self) -> Tensor:
        """The one of ``probs`` and ``logits`` that was given."""
        return self.logits if "probs" not in vars(self) else self.probs

    @lazy_property
    def logits(self) -> Tensor:
        """The log-odds."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The probability."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._param.shape


class Bernoulli(ProbsOrLogits, ExponentialFamily):
    """1 with probability ``probs`` (log-odds ``logits``), else 0.

    >>> Bernoulli(tenon.tensor([0.25])).log_prob(tenon.tensor([1.0])).exp()
    tensor([0.2500])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._set_probs_or_logits(probs, logits, validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        mode = (self.probs >= 0.5).to(self.probs)
        return tenon.where(self.probs == 0.5, tenon.nan, mode)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with tenon.no_grad():
            return tenon.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = tenon.broadcast_tensors(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._as_support(tenon.arange(2, dtype=self._param.dtype, device=self._param.device), expand)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return tenon.log1p(tenon.exp(x))
