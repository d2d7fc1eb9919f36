"""Maps from unconstrained numbers to constrained ones: ``biject_to`` and ``transform_to``.

``biject_to(c)`` returns a bijection, as densities need it; ``transform_to(c)`` may return any smooth map onto
the set, as optimizing parameters needs it. ``register`` adds further constraints to both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from tenon.errors import ArgumentError, UnsupportedError
from tenon_distributions.distributions import constraints, transforms
from tenon_distributions.distributions.constraint import _Cat, _IndependentConstraint, _Stack

if TYPE_CHECKING:
    from tenon import Tensor

#: A function that returns the transform onto a constraint. Any: its parameter is the class that it is
#: registered for, or an object with the attributes of one.
Factory: TypeAlias = Callable[[Any], transforms.Transform]
_Factory = TypeVar("_Factory", bound=Factory)


class ConstraintRegistry:
    """A table from constraint classes to functions that return the transform onto a constraint."""

    def __init__(self) -> None:
        self._registry: dict[type[constraints.Constraint], Factory] = {}

    @overload
    def register(
        self, constraint: constraints.Constraint | type[constraints.Constraint]
    ) -> Callable[[_Factory], _Factory]: ...
    @overload
    def register(
        self, constraint: constraints.Constraint | type[constraints.Constraint], factory: _Factory
    ) -> _Factory: ...
    def register(
        self,
        constraint: constraints.Constraint | type[constraints.Constraint],
        factory: _Factory | None = None,
    ) -> _Factory | Callable[[_Factory], _Factory]:
        """Register ``factory(constraint)`` for the class of ``constraint``; return a decorator without it."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        cls = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not (isinstance(cls, type) and issubclass(cls, constraints.Constraint)):
            raise ArgumentError(
                f"Expected constraint to be either a Constraint subclass or instance, but got {constraint!r}"
            )
        self._registry[cls] = factory
        return factory

    def __call__(self, constraint: constraints.Constraint) -> transforms.Transform:
        """Return the transform from unconstrained numbers to ``constraint``."""
        try:
            factory = self._registry[type(constraint)]
        except KeyError:
            raise UnsupportedError(
                f"Cannot transform {type(constraint).__name__} constraints. Add one with register()."
            ) from None
        return factory(constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _register_for_both(
    *registered: constraints.Constraint | type[constraints.Constraint],
) -> Callable[[_Factory], _Factory]:
    """Decorate a factory of a bijection, which serves ``biject_to`` and ``transform_to``."""

    def register(factory: _Factory) -> _Factory:
        for constraint in registered:
            biject_to.register(constraint, factory)
            transform_to.register(constraint, factory)
        return factory

    return register


@_register_for_both(constraints.real)
def _to_real(constraint: constraints.Constraint) -> transforms.Transform:
    return transforms.identity_transform


@_register_for_both(constraints.positive, constraints.nonnegative)
def _to_greater(constraint: constraints._LowerBounded) -> transforms.Transform:
    return _exp_and_shift(constraint.lower_bound, 1)


@_register_for_both(constraints.less_than)
def _to_less(constraint: constraints._UpperBounded) -> transforms.Transform:
    return _exp_and_shift(constraint.upper_bound, -1)


def _exp_and_shift(bound: Tensor | float, sign: int) -> transforms.Transform:
    exp = transforms.ExpTransform()
    if isinstance(bound, (int, float)) and bound == 0 and sign == 1:
        return exp
    return transforms.ComposeTransform([exp, transforms.AffineTransform(bound, sign)])


@_register_for_both(constraints.interval, constraints.half_open_interval)
def _to_interval(constraint: constraints._Bounded) -> transforms.Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    sigmoid = transforms.SigmoidTransform()
    if all(isinstance(b, (int, float)) for b in (low, high)) and (low, high) == (0, 1):
        return sigmoid
    return transforms.ComposeTransform([sigmoid, transforms.AffineTransform(low, high - low)])


@biject_to.register(constraints.independent)
def _biject_to_independent(constraint: _IndependentConstraint) -> transforms.Transform:
    base = biject_to(constraint.base_constraint)
    return transforms.IndependentTransform(base, constraint.reinterpreted_batch_ndims)


@transform_to.register(constraints.independent)
def _transform_to_independent(constraint: _IndependentConstraint) -> transforms.Transform:
    base = transform_to(constraint.base_constraint)
    return transforms.IndependentTransform(base, constraint.reinterpreted_batch_ndims)


@biject_to.register(constraints.simplex)
def _biject_to_simplex(constraint: constraints.Constraint) -> transforms.Transform:
    return transforms.StickBreakingTransform()


@transform_to.register(constraints.simplex)
def _transform_to_simplex(constraint: constraints.Constraint) -> transforms.Transform:
    return transforms.SoftmaxTransform()


@transform_to.register(constraints.lower_cholesky)
def _transform_to_lower_cholesky(constraint: constraints.Constraint) -> transforms.Transform:
    return transforms.LowerCholeskyTransform()


@transform_to.register(constraints.positive_definite)
@transform_to.register(constraints.positive_semidefinite)
def _transform_to_positive_definite(constraint: constraints.Constraint) -> transforms.Transform:
    return transforms.PositiveDefiniteTransform()


@_register_for_both(constraints.corr_cholesky)
def _to_corr_cholesky(constraint: constraints.Constraint) -> transforms.Transform:
    return transforms.CorrCholeskyTransform()


@biject_to.register(constraints.cat)
def _biject_to_cat(constraint: _Cat) -> transforms.Transform:
    parts = [biject_to(c) for c in constraint.cseq]
    return transforms.CatTransform(parts, constraint.dim, constraint.lengths)


@transform_to.register(constraints.cat)
def _transform_to_cat(constraint: _Cat) -> transforms.Transform:
    parts = [transform_to(c) for c in constraint.cseq]
    return transforms.CatTransform(parts, constraint.dim, constraint.lengths)


@biject_to.register(constraints.stack)
def _biject_to_stack(constraint: _Stack) -> transforms.Transform:
    return transforms.StackTransform([biject_to(c) for c in constraint.cseq], constraint.dim)


@transform_to.register(constraints.stack)
def _transform_to_stack(constraint: _Stack) -> transforms.Transform:
    return transforms.StackTransform([transform_to(c) for c in constraint.cseq], constraint.dim)
