"""Constraints on parameters and samples: ``torch.distributions.constraints``.

A constraint checks each value of a tensor: its last ``event_dim`` axes make up one value, the others are
batch axes. Bounds may be tensors. ``constraint_registry.py`` maps unconstrained numbers onto these sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tenon
from tenon_distributions.distributions.constraint import (
    Constraint,
    MixtureSameFamilyConstraint,
    _Cat,
    _Dependent,
    _DependentProperty,
    _IndependentConstraint,
    _Stack,
    is_dependent,
)

if TYPE_CHECKING:
    from tenon import Tensor

__all__ = [
    "Constraint",
    "MixtureSameFamilyConstraint",
    "boolean",
    "cat",
    "corr_cholesky",
    "dependent",
    "dependent_property",
    "greater_than",
    "greater_than_eq",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "is_dependent",
    "less_than",
    "lower_cholesky",
    "lower_triangular",
    "multinomial",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_definite",
    "positive_integer",
    "positive_semidefinite",
    "real",
    "real_vector",
    "simplex",
    "square",
    "stack",
    "symmetric",
    "unit_interval",
]  # fmt: skip

#: How far the sum of a point of the simplex may be from 1.
_TOLERANCE = 1e-6


class _Boolean(Constraint):
    """0 and 1."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        """Whether numbers are 0 or 1."""
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    """Vectors of zeros and a single 1."""

    is_discrete, event_dim = True, 1

    def check(self, value: Tensor) -> Tensor:
        """Whether vectors consist of zeros and a single 1."""
        return ((value == 0) | (value == 1)).all(-1) & value.sum(-1).eq(1)


class _Bounded(Constraint):
    """Base class of constraints with a lower and an upper bound."""

    def __init__(self, lower_bound: Tensor | float, upper_bound: Tensor | float) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound

    _repr_attributes = ("lower_bound", "upper_bound")


class _LowerBounded(Constraint):
    """Base class of constraints with a lower bound."""

    _repr_attributes = ("lower_bound",)

    def __init__(self, lower_bound: Tensor | float) -> None:
        self.lower_bound = lower_bound


class _UpperBounded(Constraint):
    """Base class of constraints with an upper bound."""

    _repr_attributes = ("upper_bound",)

    def __init__(self, upper_bound: Tensor | float) -> None:
        self.upper_bound = upper_bound


def _and_integer(value: Tensor, in_bounds: Tensor) -> Tensor:
    """Combine ``in_bounds`` with whether ``value`` is a whole number, which integer dtypes always are."""
    return in_bounds & (value % 1 == 0) if value.is_floating_point() else in_bounds


class _IntegerInterval(_Bounded):
    """Integers between two bounds, both included."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        """Whether numbers are integers and between the bounds."""
        return _and_integer(value, (self.lower_bound <= value) & (value <= self.upper_bound))


class _IntegerLessThan(_UpperBounded):
    """Integers up to the bound, which is included."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        """Whether numbers are integers and not above the bound."""
        return _and_integer(value, value <= self.upper_bound)


class _IntegerGreaterThan(_LowerBounded):
    """Integers from the bound on, which is included."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        """Whether numbers are integers and not below the bound."""
        return _and_integer(value, value >= self.lower_bound)


class _Real(Constraint):
    """All numbers but NaN."""

    def check(self, value: Tensor) -> Tensor:
        """Whether numbers are not NaN."""
        return value == value


class _GreaterThan(_LowerBounded):
    """Numbers greater than the bound."""

    def check(self, value: Tensor) -> Tensor:
        """Whether the numbers are greater than the bound."""
        return self.lower_bound < value


class _GreaterThanEq(_LowerBounded):
    """Numbers greater than or equal to the bound."""

    def check(self, value: Tensor) -> Tensor:
        """Whether the numbers are greater than or equal to the bound."""
        return self.lower_bound <= value


class _LessThan(_UpperBounded):
    """Numbers less than the bound."""

    def check(self, value: Tensor) -> Tensor:
        """Whether the numbers are less than the bound."""
        return value < self.upper_bound


class _Interval(_Bounded):
    """Numbers between the bounds, both included."""

    def check(self, value: Tensor) -> Tensor:
        """Whether the numbers lie between the bounds."""
        return (self.lower_bound <= value) & (value <= self.upper_bound)


class _HalfOpenInterval(_Bounded):
    """Numbers between the bounds, the lower one included and the upper one excluded."""

    def check(self, value: Tensor) -> Tensor:
        """Whether the numbers lie between the bounds and below the upper one."""
        return (self.lower_bound <= value) & (value < self.upper_bound)


class _Simplex(Constraint):
    """Vectors of nonnegative numbers whose sum is 1."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        """Whether no number is negative and the sum is 1."""
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < _TOLERANCE)


class _Multinomial(Constraint):
    """Vectors of counts with the sum ``upper_bound``, of which smaller sums are not refused."""

    is_discrete, event_dim = True, 1

    def __init__(self, upper_bound: int) -> None:
        self.upper_bound = upper_bound

    def check(self, x: Tensor) -> Tensor:
        """Whether no count is negative and the sum is not above the bound."""
        return (x >= 0).all(-1) & (x.sum(-1) <= self.upper_bound)


class _LowerTriangular(Constraint):
    """Matrices with zeros above their diagonal."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        """Whether all numbers above the diagonal are 0."""
        return (value.tril() == value).flatten(-2).all(-1)


class _LowerCholesky(_LowerTriangular):
    """Lower triangular matrices with a positive diagonal."""

    def check(self, value: Tensor) -> Tensor:
        """Whether matrices are triangular and their diagonals positive."""
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    """Cholesky factors of correlation matrices: their rows have the length 1."""

    def check(self, value: Tensor) -> Tensor:
        """Whether matrices are Cholesky factors with rows of length 1."""
        near = (
            tenon.finfo(value.dtype).eps * value.shape[-1] * 10
        )  # 10: for rounding where the rows were computed
        rows = ((value.norm(dim=-1) - 1).abs() < near).all(-1)
        return super().check(value) & rows


class _Square(Constraint):
    """Square matrices."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        """Whether the last two sizes are equal, as a boolean for every matrix."""
        is_square = value.shape[-2] == value.shape[-1]
        return tenon.full(value.shape[:-2], is_square, dtype=tenon.bool, device=value.device)


class _Symmetric(_Square):
    """Symmetric matrices."""

    def check(self, value: Tensor) -> Tensor:
        """Whether matrices are square and equal their transposes within 1e-6."""
        square = super().check(value)
        if not square.all():
            return square
        return tenon.isclose(value, value.mT, atol=1e-6).flatten(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    """Symmetric matrices without negative eigenvalues."""

    def check(self, value: Tensor) -> Tensor:
        """Whether matrices are symmetric and have no negative eigenvalue."""
        symmetric = super().check(value)
        return symmetric if not symmetric.all() else tenon.linalg.eigvalsh(value).ge(0).all(-1)


class _PositiveDefinite(_Symmetric):
    """Symmetric matrices with positive eigenvalues."""

    def check(self, value: Tensor) -> Tensor:
        """Whether matrices are symmetric and have a Cholesky factor."""
        symmetric = super().check(value)
        return symmetric if not symmetric.all() else tenon.linalg.cholesky_ex(value).info.eq(0)


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean, one_hot = _Boolean(), _OneHot()
nonnegative_integer, positive_integer = _IntegerGreaterThan(0), _IntegerGreaterThan(1)
integer_interval, multinomial = _IntegerInterval, _Multinomial
real = _Real()
real_vector = independent(real, 1)
positive, nonnegative = _GreaterThan(0.0), _GreaterThanEq(0.0)
greater_than, greater_than_eq, less_than = _GreaterThan, _GreaterThanEq, _LessThan
interval, half_open_interval = _Interval, _HalfOpenInterval
unit_interval = _Interval(0.0, 1.0)
simplex, lower_triangular, lower_cholesky = _Simplex(), _LowerTriangular(), _LowerCholesky()
corr_cholesky, square, symmetric = _CorrCholesky(), _Square(), _Symmetric()
positive_semidefinite, positive_definite = _PositiveSemidefinite(), _PositiveDefinite()
cat, stack = _Cat, _Stack
