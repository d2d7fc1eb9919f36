"""Elementwise transforms, and reshaping: exponential, affine, sigmoid, tanh, softplus, powers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon.errors import ArgumentError
from tenon.nn.functional import softplus
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.transform import Transform, check_dimensions
from tenon_distributions.distributions.utils import _sum_rightmost

if TYPE_CHECKING:
    from tenon import Size, Tensor
    from tenon_distributions.distributions.distribution import Distribution


class _Increasing(Transform):
    """Base class of increasing elementwise bijections."""

    bijective = True
    domain = constraints.real
    _equality_attributes: tuple[str, ...] | None = ()

    @property
    def sign(self) -> int:
        """1: increasing."""
        return 1


class ExpTransform(_Increasing):
    """``y = exp(x)``."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return ``x``."""
        return x


class PowerTransform(Transform):
    """``y = x ** exponent`` for positive ``x``."""

    bijective = True
    domain = constraints.positive
    codomain = constraints.positive
    _equality_attributes = ("exponent",)

    def __init__(self, exponent: Tensor | float, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent

    @property
    def sign(self) -> Tensor:
        """The exponent's sign."""
        return tenon.as_tensor(self.exponent).sign()

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return ``log |exponent y / x|``."""
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Size) -> Size:
        """Return ``shape`` broadcast against the exponent's."""
        return tenon.broadcast_shapes(shape, getattr(self.exponent, "shape", ()))

    inverse_shape = forward_shape


class SigmoidTransform(_Increasing):
    """``y = 1 / (1 + exp(-x))``, clamped to the inside of (0, 1)."""

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        info = tenon.finfo(x.dtype)
        return tenon.sigmoid(x).clamp(min=info.tiny, max=1 - info.eps)

    def _inverse(self, y: Tensor) -> Tensor:
        info = tenon.finfo(y.dtype)
        y = y.clamp(min=info.tiny, max=1 - info.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return ``log(y (1 - y))``, computed from ``x``."""
        return -softplus(-x) - softplus(x)


class SoftplusTransform(_Increasing):
    """``y = log(1 + exp(x))``."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the logarithm of the sigmoid of ``x``."""
        return -softplus(-x)


class TanhTransform(_Increasing):
    """``y = tanh(x)``; a cache avoids the inverse, which is inaccurate near -1 and 1."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return tenon.atanh(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return ``log(1 - y ** 2)``, computed from ``x`` so that it stays finite."""
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))


class AbsTransform(Transform):
    """``y = |x|``; ``inv`` returns the nonnegative one of the two inverses."""

    domain = constraints.real
    codomain = constraints.positive
    _equality_attributes = ()

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class AffineTransform(Transform):
    """``y = loc + scale * x``, for values of ``event_dim`` axes."""

    bijective = True
    _equality_attributes = ("loc", "scale")

    def __init__(
        self, loc: Tensor | float, scale: Tensor | float, event_dim: int = 0, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self) -> int:
        """The value passed at construction."""
        return self._event_dim

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> constraints.Constraint:
        """The real numbers, with ``event_dim`` event axes."""
        return (
            constraints.independent(constraints.real, self._event_dim)
            if self._event_dim
            else constraints.real
        )

    codomain = domain

    @property
    def sign(self) -> Tensor | int:
        """The scale's sign."""
        if isinstance(self.scale, (int, float)):
            return (self.scale > 0) - (self.scale < 0)
        return self.scale.sign()

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return ``log |scale|``, summed over the event axes."""
        if isinstance(self.scale, (int, float)):
            result = tenon.full_like(x, math.log(abs(self.scale)))
        else:
            result = self.scale.abs().log()
        if self._event_dim:
            shape = tenon.broadcast_shapes(x.shape, result.shape)
            result = _sum_rightmost(result.expand(shape), self._event_dim)
            return result
        return result.expand(tenon.broadcast_shapes(x.shape, result.shape))

    def forward_shape(self, shape: Size) -> Size:
        """Return ``shape`` broadcast against those of ``loc`` and ``scale``."""
        parameter_shapes = (getattr(p, "shape", ()) for p in (self.loc, self.scale))
        return tenon.broadcast_shapes(shape, *parameter_shapes)

    inverse_shape = forward_shape


class CumulativeDistributionTransform(Transform):
    """``y = distribution.cdf(x)``: maps samples of the distribution to uniform ones, as for a copula."""

    bijective = True
    codomain = constraints.unit_interval

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> constraints.Constraint:  # type: ignore[override]
        """The distribution's support."""
        return self.distribution.support

    @property
    def sign(self) -> int:
        """1: increasing."""
        return 1

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the logarithm of the density at ``x``."""
        return self.distribution.log_prob(x)


class ReshapeTransform(Transform):
    """Reshape values of ``in_shape`` to ``out_shape``."""

    bijective = True
    _equality_attributes = ("in_shape", "out_shape")

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tenon.Size(in_shape), tenon.Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ArgumentError("in_shape, out_shape have different numbers of elements")

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> constraints.Constraint:
        """The real numbers, with the axes of ``in_shape``."""
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> constraints.Constraint:
        """The real numbers, with the axes of ``out_shape``."""
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[: x.dim() - len(self.in_shape)] + self.out_shape)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(y.shape[: y.dim() - len(self.out_shape)] + self.in_shape)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return zeros of the batch shape."""
        return x.new_zeros(x.shape[: x.dim() - len(self.in_shape)])

    def forward_shape(self, shape: Size) -> Size:
        """Return ``shape`` with its trailing ``in_shape`` replaced by ``out_shape``."""
        return _replace_trailing_shape(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Size) -> Size:
        """Return ``shape`` with its trailing ``out_shape`` replaced by ``in_shape``."""
        return _replace_trailing_shape(shape, self.out_shape, self.in_shape)


def _replace_trailing_shape(shape: Size, old: Size, new: Size) -> Size:
    check_dimensions(shape, len(old))
    batch_ndims = len(shape) - len(old)
    if tuple(shape[batch_ndims:]) != tuple(old):
        raise ArgumentError(f"Shape mismatch: expected {tuple(shape[batch_ndims:])} but got {old}")
    return tenon.Size(tuple(shape[:batch_ndims])) + new
