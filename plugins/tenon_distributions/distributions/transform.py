"""What an invertible map of tensors is, and maps made of others: inverted, composed, with more event axes.

A transform maps ``domain`` to ``codomain`` and knows the logarithm of the volume that it makes of volume 1.
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
    from tenon import Tensor
    from tenon.extend import Size


class Transform:
    """A map ``y = t(x)`` with ``x = t.inv(y)`` and ``t.log_abs_det_jacobian(x, y)``.

    Subclasses define ``domain``, ``codomain``, ``_call``, ``_inverse`` and ``log_abs_det_jacobian``. With
    ``cache_size=1`` the last pair is kept, which makes inverting what was just computed exact and free.
    """

    bijective = False
    domain: Any
    codomain: Any
    #: Attributes that make two transforms of one class equal; None: only the same object is.
    _compared: tuple[str, ...] | None = None

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ArgumentError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._inv: Any = None
        self._cached_x_y: tuple[Any, Any] = (None, None)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_inv": None}  # weak references cannot be pickled

    @property
    def event_dim(self) -> int:
        """The axes of one value, where domain and codomain have as many."""
        if self.domain.event_dim != self.codomain.event_dim:
            raise ArgumentError("Please use either .domain.event_dim or .codomain.event_dim")
        return int(self.domain.event_dim)

    @property
    def inv(self) -> Any:
        """The inverse map; ``t.inv.inv is t``."""
        found = None if self._inv is None else self._inv()
        if found is None:
            found = _InverseTransform(self)
            self._inv = weakref.ref(found)
        return found

    @property
    def sign(self) -> Any:
        """1 where the map rises, -1 where it falls; for maps of single numbers."""
        raise UnsupportedError(f"{type(self).__name__} is not monotone: it has no sign.")

    def with_cache(self, cache_size: int = 1) -> Any:
        """The same map with that many pairs kept."""
        if self._cache_size == cache_size:
            return self
        new = copy.copy(self)
        Transform.__init__(new, cache_size)
        return new

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if self._compared is None or type(self) is not type(other):
            return False
        return all(_equal(getattr(self, n), getattr(other, n)) for n in self._compared)

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x: Tensor) -> Any:
        """``y``, from the cache if ``x`` is the object that was given last."""
        if self._cache_size == 0:
            return self._call(x)
        known, y = self._cached_x_y
        if x is known:
            return y
        y = self._call(x)
        self._cached_x_y = x, y
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        if self._cache_size == 0:
            return self._inverse(y)
        x, known = self._cached_x_y
        if y is known:
            return x
        x = self._inverse(y)
        self._cached_x_y = x, y
        return x

    def _call(self, x: Any) -> Any:
        raise UnsupportedError(f"{type(self).__name__} does not define _call(x).")

    def _inverse(self, y: Any) -> Any:
        raise UnsupportedError(f"{type(self).__name__} does not define _inverse(y).")

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """``log |det dy/dx|`` for every value."""
        raise UnsupportedError(f"{type(self).__name__} does not define log_abs_det_jacobian(x, y).")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def forward_shape(self, shape: Size) -> Size:
        """The shape of ``t(x)`` for an ``x`` of that shape."""
        return shape

    def inverse_shape(self, shape: Size) -> Size:
        """The shape of ``t.inv(y)`` for a ``y`` of that shape."""
        return shape


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, tenon.Tensor) or isinstance(b, tenon.Tensor):
        return bool(tenon.as_tensor(a == b).all())
    return bool(a == b)


class _InverseTransform(Transform):
    """The inverse of a transform, which does the work."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(transform._cache_size)
        self._inv: Transform = transform

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        """The codomain of what is inverted."""
        return self._inv.codomain

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        """The domain of what is inverted."""
        return self._inv.domain

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """As what is inverted."""
        return self._inv.bijective

    @property
    def sign(self) -> int:
        """As what is inverted."""
        return self._inv.sign

    @property
    def inv(self) -> Any:
        """What is inverted."""
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Any:
        """The inverse of the other with that cache."""
        return self._inv.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    __hash__ = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inv!r})"

    def __call__(self, x: Tensor) -> Any:
        """``x`` of ``y``."""
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The other's, negated."""
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Size) -> Size:
        """The other's backwards."""
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Size) -> Size:
        """The other's forwards."""
        return self._inv.forward_shape(shape)


class ComposeTransform(Transform):
    """``parts`` one after the other."""

    _compared = ("parts",)

    def __init__(self, parts: list[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)

    def with_cache(self, cache_size: int = 1) -> Any:
        """The parts with that cache."""
        return self if self._cache_size == cache_size else ComposeTransform(self.parts, cache_size)

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        """The first part's, with the axes that later parts take as one value."""
        if not self.parts:
            return constraints.real
        axes = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            axes += part.domain.event_dim - part.codomain.event_dim
            axes = max(axes, part.domain.event_dim)
        return _widened(self.parts[0].domain, axes)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        """The last part's, with the axes that earlier parts take as one value."""
        if not self.parts:
            return constraints.real
        axes = self.parts[0].domain.event_dim
        for part in self.parts:
            axes += part.codomain.event_dim - part.domain.event_dim
            axes = max(axes, part.codomain.event_dim)
        return _widened(self.parts[-1].codomain, axes)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """Whether all parts are."""
        return all(part.bijective for part in self.parts)

    @property
    def sign(self) -> Any:
        """The product of the parts'."""
        sign = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    @property
    def inv(self) -> Any:
        """The inverses in reverse order."""
        found = None if self._inv is None else self._inv()
        if found is None:
            found = ComposeTransform([part.inv for part in reversed(self.parts)])
            found._inv, self._inv = weakref.ref(self), weakref.ref(found)
        return found

    def __call__(self, x: Tensor) -> Any:
        """All parts in order."""
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The sum of the parts', each summed over axes that belong to one value of the whole."""
        if not self.parts:
            return tenon.zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        total: Any = 0
        axes = self.domain.event_dim
        for part, before, after in zip(self.parts, values[:-1], values[1:], strict=True):
            slope = part.log_abs_det_jacobian(before, after)
            total = total + _sum_rightmost(slope, axes - part.domain.event_dim)
            axes += part.codomain.event_dim - part.domain.event_dim
        return total

    def forward_shape(self, shape: Size) -> Size:
        """Through all parts."""
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Size) -> Size:
        """Back through all parts."""
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}(\n    " + ",\n    ".join(map(repr, self.parts)) + "\n)"


def _widened(constraint: Any, axes: int) -> Any:
    more = axes - constraint.event_dim
    return constraints.independent(constraint, more) if more > 0 else constraint


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """``base_transform`` with its last ``reinterpreted_batch_ndims`` batch axes made part of the values."""

    _compared = ("base_transform", "reinterpreted_batch_ndims")

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def with_cache(self, cache_size: int = 1) -> Any:
        """The base with that cache."""
        if self._cache_size == cache_size:
            return self
        return IndependentTransform(self.base_transform, self.reinterpreted_batch_ndims, cache_size)

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        """The base's, with more axes."""
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        """The base's, with more axes."""
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """As the base."""
        found: bool = self.base_transform.bijective
        return found

    @property
    def sign(self) -> Any:
        """As the base."""
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        if x.dim() < self.domain.event_dim:
            raise ArgumentError("Too few dimensions on input")
        return self.base_transform(x)

    def _inverse(self, y: Any) -> Any:
        if y.dim() < self.codomain.event_dim:
            raise ArgumentError("Too few dimensions on input")
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The base's, summed over the reinterpreted axes."""
        return _sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Any:
        """The base's."""
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        """The base's."""
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


def need_axes(shape: Sequence[int], count: int) -> None:
    """Refuse shapes with fewer axes than one value has."""
    if len(shape) < count:
        raise ArgumentError("Too few dimensions on input")
