"""Mixtures of distributions of one family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tenon
from tenon.errors import ArgumentError
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.discrete.categorical import Categorical
from tenon_distributions.distributions.distribution import Distribution

if TYPE_CHECKING:
    from tenon import Tensor


class MixtureSameFamily(Distribution):
    """The last batch axis of ``component_distribution``, mixed with the weights of a ``Categorical``.

    >>> from tenon.distributions import Normal
    >>> weights = Categorical(tenon.tensor([0.5, 0.5]))
    >>> MixtureSameFamily(weights, Normal(tenon.tensor([-1.0, 1.0]), 1.0)).mean
    tensor(0.)
    """

    arg_constraints: dict[str, Any] = {}
    has_rsample = False

    def __init__(
        self, mixture_distribution: Any, component_distribution: Any, validate_args: bool | None = None
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ArgumentError(
                " The Mixture distribution needs to be an  instance of torch.distributions.Categorical"
            )
        if not isinstance(component_distribution, Distribution):
            raise ArgumentError(
                "The Component distribution needs to be an instance of torch.distributions.Distribution"
            )
        own, whole = mixture_distribution.batch_shape, component_distribution.batch_shape
        if any(a != b for a, b in zip(reversed(own), reversed(whole[:-1]), strict=False) if 1 not in (a, b)):
            raise ArgumentError(
                f"`mixture_distribution.batch_shape` ({own}) is not compatible with "
                f"`component_distribution.batch_shape`({whole[:-1]})"
            )
        count = mixture_distribution.logits.shape[-1]
        if count != whole[-1]:
            raise ArgumentError(
                f"`mixture_distribution component` ({count}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({whole[-1]})"
            )
        self._mixture_distribution, self._component_distribution = (
            mixture_distribution,
            component_distribution,
        )
        self._num_component = count
        super().__init__(whole[:-1], component_distribution.event_shape, validate_args=validate_args)

    def _expand_part(self, name: str, part: Distribution, shape: Any) -> Any:
        return part.expand((*shape, self._num_component) if part is self._component_distribution else shape)

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Any:
        """The weights."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Any:
        """The components."""
        return self._component_distribution

    def _weights(self) -> Tensor:
        probs = self.mixture_distribution.probs
        return probs.reshape((*probs.shape, *(1,) * len(self.event_shape)))

    def _mixed(self, values: Tensor) -> Tensor:
        """``values`` of the components, summed by their weights."""
        return (self._weights() * values).sum(-1 - len(self.event_shape))

    @property
    def mean(self) -> Tensor:
        return self._mixed(self.component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        """Within the components and between them (law of total variance)."""
        parts = self.component_distribution
        apart = parts.mean - self.mean.unsqueeze(-1 - len(self.event_shape))
        return self._mixed(parts.variance) + self._mixed(apart.pow(2))

    def sample(self, sample_shape: Any = ()) -> Any:
        with tenon.no_grad():
            axis = len(tenon.Size(sample_shape)) + len(self.batch_shape)
            which = self.mixture_distribution.expand(self.batch_shape).sample(sample_shape)
            drawn = self.component_distribution.sample(sample_shape)
            index = which.reshape((*which.shape, *(1,) * (1 + len(self.event_shape))))
            index = index.expand((*which.shape, 1, *self.event_shape))
            return drawn.gather(axis, index).squeeze(axis)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        parts = self.component_distribution.log_prob(self._spread_out(value))
        return tenon.logsumexp(parts + tenon.log_softmax(self.mixture_distribution.logits, -1), -1)

    def cdf(self, value: Any) -> Any:
        return (
            self.component_distribution.cdf(self._spread_out(value)) * self.mixture_distribution.probs
        ).sum(-1)

    def _spread_out(self, value: Tensor) -> Tensor:
        """``value`` with an axis for the components."""
        return value.unsqueeze(-1 - len(self.event_shape))

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
