"""Maps of single numbers, and shapes: exponential, affine, sigmoid, tanh, softplus, powers, reshaping."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import tenon
from tenon.errors import ArgumentError
from tenon.nn.functional import softplus
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.transform import Transform, need_axes
from tenon_distributions.distributions.utils import _sum_rightmost

if TYPE_CHECKING:
    from tenon import Tensor
    from tenon.extend import Size


class _Rising(Transform):
    """A rising bijection of single numbers."""

    bijective = True
    domain = constraints.real
    _compared: tuple[str, ...] | None = ()

    @property
    def sign(self) -> int:
        """1."""
        return 1


class ExpTransform(_Rising):
    """``y = exp(x)``."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """``x``."""
        return x


class PowerTransform(Transform):
    """``y = x ** exponent`` of positive numbers."""

    bijective = True
    domain = constraints.positive
    codomain = constraints.positive
    _compared = ("exponent",)

    def __init__(self, exponent: Tensor, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent

    @property
    def sign(self) -> Tensor:
        """The exponent's."""
        return tenon.as_tensor(self.exponent).sign()

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """``log |exponent y / x|``."""
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Size) -> Size:
        """Broadcast against the exponent."""
        return tenon.broadcast_shapes(shape, getattr(self.exponent, "shape", ()))

    inverse_shape = forward_shape


class SigmoidTransform(_Rising):
    """``y = 1 / (1 + exp(-x))``, kept off 0 and 1."""

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        kind = tenon.finfo(x.dtype)
        return tenon.sigmoid(x).clamp(min=kind.tiny, max=1 - kind.eps)

    def _inverse(self, y: Tensor) -> Tensor:
        kind = tenon.finfo(y.dtype)
        y = y.clamp(min=kind.tiny, max=1 - kind.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """``log(y (1 - y))`` by ``x``."""
        return -softplus(-x) - softplus(x)


class SoftplusTransform(_Rising):
    """``y = log(1 + exp(x))``."""

    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return softplus(x)

    def _inverse(self, y: Any) -> Any:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The logarithm of the sigmoid."""
        return -softplus(-x)


class TanhTransform(_Rising):
    """``y = tanh(x)``; a cache spares the inverse, which is bad near the ends."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return tenon.atanh(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """``log(1 - y ** 2)`` by ``x``, which stays finite."""
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))


class AbsTransform(Transform):
    """``y = |x|``; of the two inverses the positive one."""

    domain = constraints.real
    codomain = constraints.positive
    _compared = ()

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Any) -> Any:
        return y


class AffineTransform(Transform):
    """``y = loc + scale * x``, for values of ``event_dim`` axes."""

    bijective = True
    _compared = ("loc", "scale")

    def __init__(
        self, loc: Tensor | float, scale: Tensor | float, event_dim: int = 0, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self) -> int:
        """As given."""
        return self._event_dim

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        """All numbers."""
        return (
            constraints.independent(constraints.real, self._event_dim)
            if self._event_dim
            else constraints.real
        )

    codomain = domain

    @property
    def sign(self) -> Tensor | int:
        """The scale's."""
        if isinstance(self.scale, (int, float)):
            return (self.scale > 0) - (self.scale < 0)
        return self.scale.sign()

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """``log |scale|``, once for each number of a value."""
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
        """Broadcast against both parameters."""
        own = (getattr(p, "shape", ()) for p in (self.loc, self.scale))
        return tenon.broadcast_shapes(shape, *own)

    inverse_shape = forward_shape


class CumulativeDistributionTransform(Transform):
    """``y = distribution.cdf(x)``: numbers of that distribution become uniform ones, as for a copula."""

    bijective = True
    codomain = constraints.unit_interval

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:
        """The distribution's support."""
        return self.distribution.support

    @property
    def sign(self) -> Any:
        """1."""
        return 1

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The density's logarithm."""
        return self.distribution.log_prob(x)


class ReshapeTransform(Transform):
    """Values of ``in_shape`` as values of ``out_shape``."""

    bijective = True
    _compared = ("in_shape", "out_shape")

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tenon.Size(in_shape), tenon.Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ArgumentError("in_shape, out_shape have different numbers of elements")

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        """All numbers in the one shape."""
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        """All numbers in the other."""
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Any) -> Any:
        return x.reshape(x.shape[: x.dim() - len(self.in_shape)] + self.out_shape)

    def _inverse(self, y: Any) -> Any:
        return y.reshape(y.shape[: y.dim() - len(self.out_shape)] + self.in_shape)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """0."""
        return x.new_zeros(x.shape[: x.dim() - len(self.in_shape)])

    def forward_shape(self, shape: Any) -> Any:
        """The other shape in place of the last axes."""
        return _exchanged(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        """The first shape in place of the last axes."""
        return _exchanged(shape, self.out_shape, self.in_shape)


def _exchanged(shape: Any, old: Any, new: Any) -> Any:
    need_axes(shape, len(old))
    cut = len(shape) - len(old)
    if tuple(shape[cut:]) != tuple(old):
        raise ArgumentError(f"Shape mismatch: expected {tuple(shape[cut:])} but got {old}")
    return tenon.Size(tuple(shape[:cut])) + new
