"""The categorical distribution, and the base class of distributions of vectors over its categories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon.errors import ArgumentError
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.distribution import Distribution, select_parameter
from tenon_distributions.distributions.utils import lazy_property, logits_to_probs, probs_to_logits

if TYPE_CHECKING:
    from tenon import Size, Tensor


class Categorical(Distribution):
    """The index of one of ``n`` categories, given their probabilities or log-probabilities in the last axis.

    ``probs`` are divided by their sum, ``logits`` normalised by ``logsumexp``.

    >>> Categorical(tenon.tensor([1.0, 3.0])).probs
    tensor([0.2500, 0.7500])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        name, value = select_parameter(probs, logits)
        if value.dim() < 1:
            raise ArgumentError(f"`{name}` parameter must be at least one-dimensional.")
        if name == "logits":
            self.logits = value - value.logsumexp(-1, keepdim=True)
        else:
            self.probs = value / value.sum(-1, keepdim=True)
        self._num_events = value.shape[-1]
        super().__init__(value.shape[:-1], validate_args=validate_args)

    @property
    def _param(self) -> Tensor:
        return self.logits if "probs" not in vars(self) else self.probs

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @lazy_property
    def logits(self) -> Tensor:
        """Log-probabilities."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        """Probabilities."""
        return logits_to_probs(self.logits)

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter, whose last axis is that of categories."""
        return self._param.shape

    @property
    def mean(self) -> Tensor:
        return tenon.full_like(self._param[..., 0], tenon.nan)

    variance = mean

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(dim=-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = tenon.Size(sample_shape)
        with tenon.no_grad():
            rows = self.probs.reshape(-1, self._num_events)
            drawn = (
                tenon.multinomial(rows, shape.numel(), True)
                if shape.numel()
                else rows.new_empty((rows.shape[0], 0), dtype=tenon.int64)
            )
            return drawn.T.reshape(self._extended_shape(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        index, logits = tenon.broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        lowest = tenon.finfo(self.logits.dtype).min
        return -(self.logits.clamp(min=lowest) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._as_support(tenon.arange(self._num_events, device=self._param.device), expand)


class CategoricalVector(Distribution):
    """A distribution of vectors over the categories of ``self._categorical``."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    _categorical: Categorical

    def _set_categorical(
        self, probs: Tensor | None, logits: Tensor | None, validate_args: bool | None
    ) -> None:
        """Initialize the distribution: its batch shape and its event shape are the parameter's."""
        self._categorical = Categorical(probs, logits)
        shape = self._categorical.param_shape
        Distribution.__init__(self, shape[:-1], shape[-1:], validate_args=validate_args)

    @property
    def _param(self) -> Tensor:
        return self._categorical._param

    @property
    def probs(self) -> Tensor:
        """Probabilities of the categories."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """Log-probabilities of the categories."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter, whose last axis is that of categories."""
        return self._categorical.param_shape
