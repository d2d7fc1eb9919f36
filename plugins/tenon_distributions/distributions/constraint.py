"""The base class of constraints, and constraints built from others: with more event axes, or along an axis.

Next: ``constraints.py`` has the constraints themselves, under PyTorch's names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import tenon
from tenon.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from tenon import Tensor


class Constraint:
    """A set of values, each of which is a tensor of ``event_dim`` axes."""

    # Any: class attributes here, properties in constraints that are built from others.
    #: Whether the set is discrete.
    is_discrete: Any = False
    #: The number of axes, at the end of a tensor, that make up one value.
    event_dim: Any = 0
    #: Attributes that ``repr`` shows.
    _repr_attributes: tuple[str, ...] = ()

    def check(self, value: Tensor) -> Tensor:
        """Return a boolean tensor of the batch axes: whether each value of ``value`` is in the set."""
        raise UnsupportedError(f"{type(self).__name__} does not define check(value).")

    def __repr__(self) -> str:
        attributes = ", ".join(f"{name}={getattr(self, name)}" for name in self._repr_attributes)
        return f"{type(self).__name__.removeprefix('_')}({attributes})"


class _Dependent(Constraint):
    """A set that depends on a distribution's parameters and so cannot be checked without them."""

    # NotImplemented, which type checkers take for Any, marks what is not known yet.
    def __init__(self, *, is_discrete: bool = NotImplemented, event_dim: int = NotImplemented) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def _declared(self, name: str) -> int:
        value = getattr(self, f"_{name}")
        if value is NotImplemented:
            raise UnsupportedError(f".{name} cannot be determined statically")
        return value

    @property
    def is_discrete(self) -> bool:
        """The value passed at construction; UnsupportedError if none was."""
        return bool(self._declared("is_discrete"))

    @property
    def event_dim(self) -> int:
        """The value passed at construction; UnsupportedError if none was."""
        return self._declared("event_dim")

    def __call__(self, *, is_discrete: bool = NotImplemented, event_dim: int = NotImplemented) -> _Dependent:
        """Return a copy with these attributes set: ``@constraints.dependent(event_dim=1)``."""
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, x: Tensor) -> Tensor:
        """Raise ArgumentError: the set is not known."""
        raise ArgumentError("Cannot determine validity of dependent constraint")


def is_dependent(constraint: object) -> bool:
    """Whether ``constraint`` depends on parameters and cannot be checked without them."""
    return isinstance(constraint, _Dependent)


#: A getter, whose parameter is an instance of the class that has the property.
_Getter: TypeAlias = Callable[[Any], Constraint]


class _DependentProperty(property, _Dependent):
    """A property of a distribution that returns a constraint; on the class itself it is ``dependent``.

    Used with or without arguments: ``@dependent_property(is_discrete=False, event_dim=0)``.
    """

    def __init__(
        self,
        fn: _Getter | None = None,
        *,
        is_discrete: bool = NotImplemented,
        event_dim: int = NotImplemented,
    ) -> None:
        super().__init__(fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn: _Getter) -> _DependentProperty:  # type: ignore[override]
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class _IndependentConstraint(Constraint):
    """``base_constraint`` with its last ``reinterpreted_batch_ndims`` batch axes as event axes."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> bool:
        """Whether the base constraint is discrete."""
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:
        """The number of the base's event axes and the reinterpreted ones."""
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        """Whether all elements over the reinterpreted axes satisfy the base constraint."""
        satisfied = self.base_constraint.check(value)
        axes = self.reinterpreted_batch_ndims
        if satisfied.dim() < axes:
            raise ArgumentError(
                f"Expected value.dim() >= {self.base_constraint.event_dim + axes} but got {value.dim()}"
            )
        return satisfied.reshape((*satisfied.shape[: satisfied.dim() - axes], -1)).all(-1)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """The constraint of a mixture's components, for values that have no component axis."""

    def __init__(self, base_constraint: Constraint) -> None:
        if not isinstance(base_constraint, Constraint):
            raise ArgumentError(f"Expected a Constraint, got {type(base_constraint).__name__}")
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> bool:
        """Whether the base constraint is discrete."""
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:
        """The number of the base's event axes."""
        return self.base_constraint.event_dim

    def check(self, value: Tensor) -> Tensor:
        """Whether values satisfy the constraint of every component."""
        axis = value.dim() - self.event_dim
        satisfied = self.base_constraint.check(value.unsqueeze(axis))
        if satisfied.dim() <= axis:  # the bounds do not differ between components
            return satisfied
        return satisfied.all(axis) if self.event_dim == 0 else satisfied.flatten(axis).all(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamilyConstraint({self.base_constraint!r})"


class _CompoundConstraint(Constraint):
    """A sequence of constraints along an axis."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        if not all(isinstance(c, Constraint) for c in cseq):
            raise ArgumentError("cseq must be constraints")
        self.cseq, self.dim = list(cseq), dim

    @property
    def is_discrete(self) -> bool:
        """Whether one of the constraints is discrete."""
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:
        """The largest number of event axes of the constraints."""
        return max(c.event_dim for c in self.cseq)


class _Cat(_CompoundConstraint):
    """Constraints on consecutive sections of the axis ``dim``, of sizes ``lengths``."""

    def __init__(
        self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None
    ) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise ArgumentError(f"lengths must be one for each of {len(self.cseq)} constraints")

    def check(self, value: Tensor) -> Tensor:
        """Check each section by its constraint; concatenate the results."""
        sections = value.split(self.lengths, self.dim)
        return tenon.cat([c.check(v) for c, v in zip(self.cseq, sections, strict=True)], self.dim)


class _Stack(_CompoundConstraint):
    """Constraints on the slices along the axis ``dim``."""

    def check(self, value: Tensor) -> Tensor:
        """Check each slice by its constraint; stack the results."""
        slices = value.unbind(self.dim)
        return tenon.stack([c.check(v) for c, v in zip(self.cseq, slices, strict=True)], self.dim)
