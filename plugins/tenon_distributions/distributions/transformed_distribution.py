"""What a transform makes of a distribution: flows, and many named distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tenon
from tenon.errors import ArgumentError
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.distribution import Distribution
from tenon_distributions.distributions.independent import Independent
from tenon_distributions.distributions.transform import ComposeTransform, Transform
from tenon_distributions.distributions.utils import _sum_rightmost

if TYPE_CHECKING:
    from tenon import Tensor
    from tenon.extend import Size


class TransformedDistribution(Distribution):
    """``transforms`` applied in order to numbers of ``base_distribution``.

    The density at ``y`` is that of ``x``, divided by the volume that the transforms make of volume 1.

    >>> from tenon.distributions import ExpTransform, Normal
    >>> TransformedDistribution(Normal(0.0, 1.0), ExpTransform()).support
    GreaterThan(lower_bound=0.0)
    """

    arg_constraints: dict[str, Any] = {}

    def __init__(self, base_distribution: Any, transforms: Any, validate_args: bool | None = None) -> None:
        if isinstance(transforms, Transform):
            transforms = [transforms]
        elif not isinstance(transforms, list):
            raise ArgumentError(f"transforms must be a Transform or list, but was {transforms}")
        if not all(isinstance(t, Transform) for t in transforms):
            raise ArgumentError("transforms must be a Transform or a list of Transforms")
        self.transforms = transforms
        whole = ComposeTransform(self.transforms)
        shape = base_distribution.batch_shape + base_distribution.event_shape
        axes = len(base_distribution.event_shape)
        if len(shape) < whole.domain.event_dim:
            raise ArgumentError(
                f"base_distribution needs to have shape with size at least {whole.domain.event_dim}, "
                f"but got {shape}."
            )
        # Parameters of the transforms may broadcast the base, and their values take more axes than its.
        made = whole.forward_shape(shape)
        wanted = whole.inverse_shape(made)
        if shape != wanted:
            base_distribution = base_distribution.expand(wanted[: len(wanted) - axes])
        more = whole.domain.event_dim - axes
        self.base_dist = Independent(base_distribution, more) if more > 0 else base_distribution
        event = max(whole.codomain.event_dim, axes + whole.codomain.event_dim - whole.domain.event_dim)
        cut = len(made) - event
        super().__init__(made[:cut], made[cut:], validate_args)

    def _expand_part(self, name: str, part: Distribution, shape: Size) -> Any:
        if name != "base_dist":
            return part.expand(shape)
        whole = ComposeTransform(self.transforms)
        base = whole.inverse_shape(shape + self.event_shape)
        return part.expand(base[: len(base) - len(part.event_shape)])

    @property
    def has_rsample(self) -> bool:
        return self.base_dist.has_rsample

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        found = self.transforms[-1].codomain
        more = len(self.event_shape) - found.event_dim
        return constraints.independent(found, more) if more > 0 else found

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with tenon.no_grad():
            return self._moved(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._moved(self.base_dist.rsample(sample_shape))

    def _moved(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        axes, result, y = len(self.event_shape), 0.0, value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            axes += transform.domain.event_dim - transform.codomain.event_dim
            slope = transform.log_abs_det_jacobian(x, y)
            result = result - _sum_rightmost(slope, axes - transform.domain.event_dim)
            y = x
        return result + _sum_rightmost(self.base_dist.log_prob(y), axes - len(self.base_dist.event_shape))

    def _mirrored(self, value: Tensor) -> Tensor:
        """``value`` counted from the other end where the transforms fall, which is its own inverse."""
        sign = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        return value if isinstance(sign, int) and sign == 1 else sign * (value - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._mirrored(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._moved(self.base_dist.icdf(self._mirrored(value)))
