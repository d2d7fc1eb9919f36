"""The base class of transforms, and transforms built from others: inverted, composed, with more event axes.

A transform maps ``domain`` to ``codomain`` and computes the logarithm of its Jacobian's determinant.
Next: ``elementwise_transforms.py``, ``vector_transforms.py``; ``transforms.py`` has all of PyTorch's names.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tenon
from tenon.errors import ArgumentError, UnsupportedError
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.utils import _sum_rightmost

if TYPE_CHECKING:
    from tenon import Size, Tensor


class Transform:
    """A map ``y = t(x)`` with ``x = t.inv(y)`` and ``t.log_abs_det_jacobian(x, y)``.

    Subclasses define ``domain``, ``codomain``, ``_call``, ``_inverse`` and ``log_abs_det_jacobian``. With
    ``cache_size=1`` the last ``(x, y)`` is kept, which makes inverting the last result exact and free.
    """

    bijective = False
    domain: constraints.Constraint
    codomain: constraints.Constraint
    #: Attributes by which transforms of one class are compared; with None they are equal only if identical.
    _equality_attributes: tuple[str, ...] | None = None

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ArgumentError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._inv: Any = None  # a weak reference to the inverse; in an inverse, the transform itself
        self._cached_x_y: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_inv": None}  # weak references cannot be pickled

    @property
    def event_dim(self) -> int:
        """The number of event axes; an error if those of domain and codomain differ."""
        if self.domain.event_dim != self.codomain.event_dim:
            raise ArgumentError("Please use either .domain.event_dim or .codomain.event_dim")
        return int(self.domain.event_dim)

    @property
    def inv(self) -> Transform:
        """The inverse map; ``t.inv.inv is t``."""
        inverse: Transform | None = None if self._inv is None else self._inv()
        if inverse is None:
            inverse = _InverseTransform(self)
            self._inv = weakref.ref(inverse)
        return inverse

    @property
    def sign(self) -> Tensor | int:
        """1 where the map is increasing, -1 where it is decreasing; for monotone scalar maps."""
        raise UnsupportedError(f"{type(self).__name__} is not monotone: it has no sign.")

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Return this transform with a cache of ``cache_size`` pairs ``(x, y)``."""
        if self._cache_size == cache_size:
            return self
        new = copy.copy(self)
        Transform.__init__(new, cache_size)
        return new

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if self._equality_attributes is None or type(self) is not type(other):
            return False
        return all(_values_equal(getattr(self, n), getattr(other, n)) for n in self._equality_attributes)

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x: Tensor) -> Tensor:
        """Return ``y``, from the cache if ``x`` is the object of the last call."""
        if self._cache_size == 0:
            return self._call(x)
        cached_x, cached_y = self._cached_x_y
        if cached_y is not None and x is cached_x:
            return cached_y
        y = self._call(x)
        self._cached_x_y = x, y
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        if self._cache_size == 0:
            return self._inverse(y)
        cached_x, cached_y = self._cached_x_y
        if cached_x is not None and y is cached_y:
            return cached_x
        x = self._inverse(y)
        self._cached_x_y = x, y
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise UnsupportedError(f"{type(self).__name__} does not define _call(x).")

    def _inverse(self, y: Tensor) -> Tensor:
        raise UnsupportedError(f"{type(self).__name__} does not define _inverse(y).")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return ``log |det dy/dx|`` for every value."""
        raise UnsupportedError(f"{type(self).__name__} does not define log_abs_det_jacobian(x, y).")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def forward_shape(self, shape: Size) -> Size:
        """Return the shape of ``t(x)`` for an ``x`` of ``shape``."""
        return shape

    def inverse_shape(self, shape: Size) -> Size:
        """Return the shape of ``t.inv(y)`` for a ``y`` of ``shape``."""
        return shape


def _values_equal(a: object, b: object) -> bool:
    if isinstance(a, tenon.Tensor) or isinstance(b, tenon.Tensor):
        return bool(tenon.as_tensor(a == b).all())
    return bool(a == b)


class _InverseTransform(Transform):
    """The inverse of ``transform``, which computes it."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(transform._cache_size)
        self._inv: Transform = transform

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> constraints.Constraint:
        """The codomain of the inverted transform."""
        return self._inv.codomain

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> constraints.Constraint:
        """The domain of the inverted transform."""
        return self._inv.domain

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """Whether the inverted transform is bijective."""
        return self._inv.bijective

    @property
    def sign(self) -> Tensor | int:
        """The sign of the inverted transform."""
        return self._inv.sign

    @property
    def inv(self) -> Transform:
        """The inverted transform."""
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Return the inverse of the inverted transform with that cache."""
        return self._inv.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    __hash__ = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inv!r})"

    def __call__(self, x: Tensor) -> Tensor:
        """Return the inverted transform's inverse of ``x``."""
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the negated log-determinant of the inverted transform."""
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Size) -> Size:
        """Return the inverted transform's ``inverse_shape``."""
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Size) -> Size:
        """Return the inverted transform's ``forward_shape``."""
        return self._inv.forward_shape(shape)


class ComposeTransform(Transform):
    """The composition of ``parts``, the first of which is applied first."""

    _equality_attributes = ("parts",)

    def __init__(self, parts: list[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Return the composition of the parts with that cache."""
        return self if self._cache_size == cache_size else ComposeTransform(self.parts, cache_size)

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> constraints.Constraint:
        """The first part's domain, with the event axes that later parts need."""
        if not self.parts:
            return constraints.real
        axes = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            axes += part.domain.event_dim - part.codomain.event_dim
            axes = max(axes, part.domain.event_dim)
        return _reinterpret_axes(self.parts[0].domain, axes)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> constraints.Constraint:
        """The last part's codomain, with the event axes that earlier parts have."""
        if not self.parts:
            return constraints.real
        axes = self.parts[0].domain.event_dim
        for part in self.parts:
            axes += part.codomain.event_dim - part.domain.event_dim
            axes = max(axes, part.codomain.event_dim)
        return _reinterpret_axes(self.parts[-1].codomain, axes)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """Whether all parts are bijective."""
        return all(part.bijective for part in self.parts)

    @property
    def sign(self) -> Tensor | int:
        """The product of the parts' signs."""
        sign: Tensor | int = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    @property
    def inv(self) -> Transform:
        """The composition of the parts' inverses in reverse order."""
        inverse: Transform | None = None if self._inv is None else self._inv()
        if inverse is None:
            inverse = ComposeTransform([part.inv for part in reversed(self.parts)])
            inverse._inv, self._inv = weakref.ref(self), weakref.ref(inverse)
        return inverse

    def __call__(self, x: Tensor) -> Tensor:
        """Apply all parts in order."""
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the sum of the parts' log-determinants over the event axes of the composition."""
        if not self.parts:
            return tenon.zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        total: Any = 0  # a tensor from the first part on
        axes = self.domain.event_dim
        for part, before, after in zip(self.parts, values[:-1], values[1:], strict=True):
            log_det = part.log_abs_det_jacobian(before, after)
            total = total + _sum_rightmost(log_det, axes - part.domain.event_dim)
            axes += part.codomain.event_dim - part.domain.event_dim
        return total

    def forward_shape(self, shape: Size) -> Size:
        """Return the shape after all parts."""
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Size) -> Size:
        """Return the shape before all parts."""
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}(\n    " + ",\n    ".join(map(repr, self.parts)) + "\n)"


def _reinterpret_axes(constraint: constraints.Constraint, event_dim: int) -> constraints.Constraint:
    """Reinterpret batch axes of ``constraint`` as event axes until it has ``event_dim`` of these."""
    extra = event_dim - constraint.event_dim
    return constraints.independent(constraint, extra) if extra > 0 else constraint


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """``base_transform`` with its last ``reinterpreted_batch_ndims`` batch axes as event axes."""

    _equality_attributes = ("base_transform", "reinterpreted_batch_ndims")

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Return this transform over the base with that cache."""
        if self._cache_size == cache_size:
            return self
        return IndependentTransform(self.base_transform, self.reinterpreted_batch_ndims, cache_size)

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> constraints.Constraint:
        """The base's domain, with more event axes."""
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> constraints.Constraint:
        """The base's codomain, with more event axes."""
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """Whether the base is bijective."""
        return self.base_transform.bijective

    @property
    def sign(self) -> Tensor | int:
        """The sign of the base."""
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        if x.dim() < self.domain.event_dim:
            raise ArgumentError("Too few dimensions on input")
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        if y.dim() < self.codomain.event_dim:
            raise ArgumentError("Too few dimensions on input")
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the base's log-determinant, summed over the reinterpreted axes."""
        return _sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Size) -> Size:
        """Return the base's ``forward_shape``."""
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Size) -> Size:
        """Return the base's ``inverse_shape``."""
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


def check_dimensions(shape: Sequence[int], count: int) -> None:
    """Raise ArgumentError if ``shape`` has fewer than ``count`` axes."""
    if len(shape) < count:
        raise ArgumentError("Too few dimensions on input")
