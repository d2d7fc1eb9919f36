"""Batch axes reinterpreted as event axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon  # noqa: F401 - for the example
from tenon.errors import ArgumentError, UnsupportedError
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.distribution import Distribution
from tenon_distributions.distributions.utils import _sum_rightmost

if TYPE_CHECKING:
    from tenon import Size, Tensor


class Independent(Distribution):
    """``base_distribution`` with its last ``reinterpreted_batch_ndims`` batch axes as event axes.

    >>> from tenon.distributions import Normal
    >>> Independent(Normal(tenon.zeros(2, 3), 1.0), 1).log_prob(tenon.zeros(2, 3)).shape
    torch.Size([2])
    """

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(
        self,
        base_distribution: Distribution,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        batch = base_distribution.batch_shape
        if reinterpreted_batch_ndims > len(batch):
            raise ArgumentError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual "
                f"{reinterpreted_batch_ndims} vs {len(batch)}"
            )
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, reinterpreted_batch_ndims
        ndims = len(batch) - reinterpreted_batch_ndims
        super().__init__(batch[:ndims], batch[ndims:] + base_distribution.event_shape, validate_args)

    def _expand_component(self, name: str, part: Distribution, shape: Size) -> Distribution:
        return part.expand(shape + self.event_shape[: self.reinterpreted_batch_ndims])

    @property
    def has_rsample(self) -> bool:
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> bool:
        return self.reinterpreted_batch_ndims == 0 and self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self) -> constraints.Constraint:
        base = self.base_dist.support
        ndims = self.reinterpreted_batch_ndims
        return constraints.independent(base, ndims) if ndims else base

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return _sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return _sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims > 0:
            raise UnsupportedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"
