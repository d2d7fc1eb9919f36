"""What a constraint is, and constraints made of others: reinterpreted axes, pieces and slices of an axis.

Next: ``constraints.py`` has the sets themselves and PyTorch's names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tenon
from tenon.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from tenon import Tensor


class Constraint:
    """A set of values, each of which is a tensor of ``event_dim`` axes."""

    #: Whether the set is of isolated points.
    is_discrete: Any = False
    event_dim: Any = 0
    #: Attributes that ``repr`` shows.
    _shown: tuple[str, ...] = ()

    def check(self, value: Any) -> Any:
        """A boolean for every value in ``value``: whether it lies in the set."""
        raise UnsupportedError(f"{type(self).__name__} does not define check(value).")

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)}" for name in self._shown)
        return f"{type(self).__name__.removeprefix('_')}({shown})"


class _Dependent(Constraint):
    """A set that depends on other values; it cannot be checked by itself."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def _known(self, name: str) -> Any:
        value = getattr(self, f"_{name}")
        if value is NotImplemented:
            raise UnsupportedError(f".{name} cannot be determined statically")
        return value

    @property
    def is_discrete(self) -> Any:
        """As given; an error if it was not."""
        return self._known("is_discrete")

    @property
    def event_dim(self) -> Any:
        """As given; an error if it was not."""
        return self._known("event_dim")

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> Any:
        """The same with more known: ``@constraints.dependent(event_dim=1)``."""
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, x: Any) -> Any:
        """Refused: the set is not known."""
        raise ArgumentError("Cannot determine validity of dependent constraint")


def is_dependent(constraint: Any) -> bool:
    """Whether ``constraint`` is one that cannot be checked by itself."""
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """A property of a distribution that gives a constraint, and ``dependent`` on the class itself.

    Used with or without arguments: ``@dependent_property(is_discrete=False, event_dim=0)``.
    """

    def __init__(
        self,
        fn: Callable[[Any], Any] | None = None,
        *,
        is_discrete: Any = NotImplemented,
        event_dim: Any = NotImplemented,
    ) -> None:
        super().__init__(fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn: Callable[[Any], Any]) -> Any:  # type: ignore[override]
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class _IndependentConstraint(Constraint):
    """``base_constraint`` with its last ``reinterpreted_batch_ndims`` batch axes made part of the values."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> Any:
        """As the base."""
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> Any:
        """The base's axes and the reinterpreted ones."""
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        """Whether all of a value's parts lie in the base set."""
        fits = self.base_constraint.check(value)
        axes = self.reinterpreted_batch_ndims
        if fits.dim() < axes:
            raise ArgumentError(
                f"Expected value.dim() >= {self.base_constraint.event_dim + axes} but got {value.dim()}"
            )
        return fits.reshape((*fits.shape[: fits.dim() - axes], -1)).all(-1)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """``base_constraint`` of components, for values that have no axis of components."""

    def __init__(self, base_constraint: Constraint) -> None:
        if not isinstance(base_constraint, Constraint):
            raise ArgumentError(f"Expected a Constraint, got {type(base_constraint).__name__}")
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> Any:
        """As the base."""
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> Any:
        """As the base."""
        return self.base_constraint.event_dim

    def check(self, value: Tensor) -> Tensor:
        """Whether values lie in the set of every component."""
        axis = value.dim() - self.event_dim
        fits = self.base_constraint.check(value.unsqueeze(axis))
        if fits.dim() <= axis:  # a set without bounds per component
            return fits
        return fits.all(axis) if self.event_dim == 0 else fits.flatten(axis).all(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamilyConstraint({self.base_constraint!r})"


class _Parts(Constraint):
    """Constraints one after another along an axis."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        if not all(isinstance(c, Constraint) for c in cseq):
            raise ArgumentError("cseq must be constraints")
        self.cseq, self.dim = list(cseq), dim

    @property
    def is_discrete(self) -> Any:
        """Whether one of the parts is."""
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> Any:
        """The most axes that a part has."""
        return max(c.event_dim for c in self.cseq)


class _Cat(_Parts):
    """Constraints on pieces of an axis, of ``lengths`` each."""

    def __init__(
        self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None
    ) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise ArgumentError(f"lengths must be one for each of {len(self.cseq)} constraints")

    def check(self, value: Tensor) -> Tensor:
        """The pieces' own answers, joined again."""
        pieces = value.split(self.lengths, self.dim)
        return tenon.cat([c.check(v) for c, v in zip(self.cseq, pieces, strict=True)], self.dim)


class _Stack(_Parts):
    """Constraints on the slices of an axis."""

    def check(self, value: Tensor) -> Tensor:
        """The slices' own answers, stacked again."""
        slices = value.unbind(self.dim)
        return tenon.stack([c.check(v) for c, v in zip(self.cseq, slices, strict=True)], self.dim)
