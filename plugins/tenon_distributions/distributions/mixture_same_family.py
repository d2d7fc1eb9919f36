"""Mixtures of distributions of one family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon.errors import ArgumentError
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.discrete.categorical import Categorical
from tenon_distributions.distributions.distribution import Distribution

if TYPE_CHECKING:
    from tenon import Size, Tensor


class MixtureSameFamily(Distribution):
    """The last batch axis of ``component_distribution``, mixed with the weights of a ``Categorical``.

    >>> from tenon.distributions import Normal
    >>> weights = Categorical(tenon.tensor([0.5, 0.5]))
    >>> MixtureSameFamily(weights, Normal(tenon.tensor([-1.0, 1.0]), 1.0)).mean
    tensor(0.)
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    has_rsample = False

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ArgumentError(
                " The Mixture distribution needs to be an  instance of torch.distributions.Categorical"
            )
        if not isinstance(component_distribution, Distribution):
            raise ArgumentError(
                "The Component distribution needs to be an instance of torch.distributions.Distribution"
            )
        mixture_batch, component_batch = mixture_distribution.batch_shape, component_distribution.batch_shape
        sizes = zip(reversed(mixture_batch), reversed(component_batch[:-1]), strict=False)
        if any(a != b for a, b in sizes if 1 not in (a, b)):
            raise ArgumentError(
                f"`mixture_distribution.batch_shape` ({mixture_batch}) is not compatible with "
                f"`component_distribution.batch_shape`({component_batch[:-1]})"
            )
        count = mixture_distribution.logits.shape[-1]
        if count != component_batch[-1]:
            raise ArgumentError(
                f"`mixture_distribution component` ({count}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({component_batch[-1]})"
            )
        self._mixture_distribution, self._component_distribution = (
            mixture_distribution,
            component_distribution,
        )
        self._num_component = count
        super().__init__(
            component_batch[:-1], component_distribution.event_shape, validate_args=validate_args
        )

    def _expand_component(self, name: str, part: Distribution, shape: Size) -> Distribution:
        return part.expand((*shape, self._num_component) if part is self._component_distribution else shape)

    @constraints.dependent_property
    def support(self) -> constraints.Constraint:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """The distribution over the components: their weights."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components, along its last batch axis."""
        return self._component_distribution

    def _weights(self) -> Tensor:
        probs = self.mixture_distribution.probs
        return probs.reshape((*probs.shape, *(1,) * len(self.event_shape)))

    def _weighted_sum(self, values: Tensor) -> Tensor:
        """Sum ``values`` over the components, weighted by their probabilities."""
        return (self._weights() * values).sum(-1 - len(self.event_shape))

    @property
    def mean(self) -> Tensor:
        return self._weighted_sum(self.component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        """The variance within the components plus that between them (law of total variance)."""
        parts = self.component_distribution
        apart = parts.mean - self.mean.unsqueeze(-1 - len(self.event_shape))
        return self._weighted_sum(parts.variance) + self._weighted_sum(apart.pow(2))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with tenon.no_grad():
            axis = len(tenon.Size(sample_shape)) + len(self.batch_shape)
            component = self.mixture_distribution.expand(self.batch_shape).sample(sample_shape)
            drawn = self.component_distribution.sample(sample_shape)
            index = component.reshape((*component.shape, *(1,) * (1 + len(self.event_shape))))
            index = index.expand((*component.shape, 1, *self.event_shape))
            return drawn.gather(axis, index).squeeze(axis)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        parts = self.component_distribution.log_prob(self._with_component_axis(value))
        return tenon.logsumexp(parts + tenon.log_softmax(self.mixture_distribution.logits, -1), -1)

    def cdf(self, value: Tensor) -> Tensor:
        return (
            self.component_distribution.cdf(self._with_component_axis(value))
            * self.mixture_distribution.probs
        ).sum(-1)

    def _with_component_axis(self, value: Tensor) -> Tensor:
        """Insert an axis for the components before the event axes of ``value``."""
        return value.unsqueeze(-1 - len(self.event_shape))

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
