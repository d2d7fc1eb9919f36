"""Distributions of transformed samples: normalizing flows, and many named distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon.errors import ArgumentError
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.distribution import Distribution
from tenon_distributions.distributions.independent import Independent
from tenon_distributions.distributions.transform import ComposeTransform, Transform
from tenon_distributions.distributions.utils import _sum_rightmost

if TYPE_CHECKING:
    from tenon import Size, Tensor


class TransformedDistribution(Distribution):
    """The distribution of samples of ``base_distribution`` after ``transforms``, applied in order.

    The density at ``y`` is the base's density at ``x`` divided by ``|det dy/dx|``.

    >>> from tenon.distributions import ExpTransform, Normal
    >>> TransformedDistribution(Normal(0.0, 1.0), ExpTransform()).support
    GreaterThan(lower_bound=0.0)
    """

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | list[Transform],
        validate_args: bool | None = None,
    ) -> None:
        if isinstance(transforms, Transform):
            transforms = [transforms]
        elif not isinstance(transforms, list):
            raise ArgumentError(f"transforms must be a Transform or list, but was {transforms}")
        if not all(isinstance(t, Transform) for t in transforms):
            raise ArgumentError("transforms must be a Transform or a list of Transforms")
        self.transforms = transforms
        transform = ComposeTransform(self.transforms)
        shape = base_distribution.batch_shape + base_distribution.event_shape
        axes = len(base_distribution.event_shape)
        if len(shape) < transform.domain.event_dim:
            raise ArgumentError(
                f"base_distribution needs to have shape with size at least {transform.domain.event_dim}, "
                f"but got {shape}."
            )
        # The transforms' parameters may broadcast the base's batch, and their events may have more axes.
        output_shape = transform.forward_shape(shape)
        base_shape = transform.inverse_shape(output_shape)
        if shape != base_shape:
            base_distribution = base_distribution.expand(base_shape[: len(base_shape) - axes])
        extra = transform.domain.event_dim - axes
        self.base_dist = Independent(base_distribution, extra) if extra > 0 else base_distribution
        event = max(
            transform.codomain.event_dim, axes + transform.codomain.event_dim - transform.domain.event_dim
        )
        batch = len(output_shape) - event
        super().__init__(output_shape[:batch], output_shape[batch:], validate_args)

    def _expand_component(self, name: str, part: Distribution, shape: Size) -> Distribution:
        if name != "base_dist":
            return part.expand(shape)
        transform = ComposeTransform(self.transforms)
        base = transform.inverse_shape(shape + self.event_shape)
        return part.expand(base[: len(base) - len(part.event_shape)])

    @property
    def has_rsample(self) -> bool:
        return self.base_dist.has_rsample

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> constraints.Constraint:
        if not self.transforms:
            return self.base_dist.support
        codomain = self.transforms[-1].codomain
        extra = len(self.event_shape) - codomain.event_dim
        return constraints.independent(codomain, extra) if extra > 0 else codomain

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with tenon.no_grad():
            return self._apply_transforms(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._apply_transforms(self.base_dist.rsample(sample_shape))

    def _apply_transforms(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        axes, y = len(self.event_shape), value
        result: Tensor | float = 0.0
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            axes += transform.domain.event_dim - transform.codomain.event_dim
            log_det = transform.log_abs_det_jacobian(x, y)
            result = result - _sum_rightmost(log_det, axes - transform.domain.event_dim)
            y = x
        return result + _sum_rightmost(self.base_dist.log_prob(y), axes - len(self.base_dist.event_shape))

    def _flip_if_decreasing(self, value: Tensor) -> Tensor:
        """Replace the probability ``value`` by ``1 - value`` where the composed transform is decreasing."""
        sign: Tensor | int = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        return value if isinstance(sign, int) and sign == 1 else sign * (value - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._flip_if_decreasing(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._apply_transforms(self.base_dist.icdf(self._flip_if_decreasing(value)))
