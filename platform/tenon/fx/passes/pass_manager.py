"""``PassManager`` of functions from a module to a module, the older of the two; see
``infra/pass_manager.py``."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Self, TypeAlias, TypeVar

from tenon.fx.passes.infra.pass_manager import PassSchedule, _name

__all__ = [
    "PassManager",
    "inplace_wrapper",
    "log_hook",
    "loop_pass",
    "these_before_those_pass_constraint",
    "this_before_that_pass_constraint",
]

logger = logging.getLogger(__name__)

Module = TypeVar("Module")
Pass: TypeAlias = Callable[..., Any]  # from a module to a module
Constraint: TypeAlias = Callable[[Pass, Pass], bool]


def inplace_wrapper(fn: Callable[..., Any]) -> Callable[..., Any]:  # a pass that returns nothing
    """Return ``fn``, which changes its argument, as a pass that returns it."""

    @functools.wraps(fn)
    def wrapped(gm: Any) -> Any:  # a module
        fn(gm)
        return gm

    return wrapped


def log_hook(fn: Callable[..., Any], level: int = logging.INFO) -> Callable[..., Any]:  # any pass
    """Return ``fn``, extended to log the module that it returns."""

    @functools.wraps(fn)
    def wrapped(gm: Any) -> Any:  # a module
        result = fn(gm)
        logger.log(level, "Ran pass %s\n Return value: %s", _name(fn), result)
        return result

    return wrapped


def loop_pass(
    base_pass: Callable[[Module], Module],
    n_iter: int | None = None,
    predicate: Callable[[Module], bool] | None = None,
) -> Callable[[Module], Module]:
    """Return a pass that runs ``base_pass`` ``n_iter`` times, or while ``predicate(module)`` is true."""
    if (n_iter is None) == (predicate is None):
        raise AssertionError("loop_pass: exactly one of `n_iter` and `predicate` must be specified.")

    @functools.wraps(base_pass)
    def repeated(source: Module) -> Module:
        count = 0
        while count < n_iter if n_iter is not None else predicate is not None and predicate(source):
            source = base_pass(source)
            count += 1
        return source

    return repeated


def this_before_that_pass_constraint(this: Pass, that: Pass) -> Constraint:
    """Return the constraint that ``this`` runs before ``that``."""
    return lambda a, b: not (a is that and b is this)


def these_before_those_pass_constraint(these: Pass, those: Pass) -> Constraint:
    """Return the constraint that passes made by ``these`` run before those made by ``those``.

    Both are functions that wrap passes; the results are identified by their ``__name__``.
    """
    return lambda a, b: not (_name(a) == _name(those) and _name(b) == _name(these))


class PassManager(PassSchedule):
    """Runs passes, functions from a module to a module, one after the other.

    >>> manager = PassManager.build_from_passlist([lambda n: n + 1, lambda n: n * 2])
    >>> manager(3)
    8
    """

    @classmethod
    def build_from_passlist(cls, passes: list[Pass]) -> Self:
        """Return a manager of ``passes``."""
        return cls(passes)

    def remove_pass(self, _passes: list[str]) -> None:
        """Remove the passes with these names."""
        self.passes = [p for p in self.passes if _name(p) not in _passes]
        self._validated = False

    def replace_pass(self, _target: Pass, _replacement: Pass) -> None:
        """Replace the pass with the name of ``_target``."""
        self.passes = [_replacement if _name(p) == _name(_target) else p for p in self.passes]
        self._validated = False

    def validate(self) -> None:
        """Raise RuntimeError if the order of the passes violates a constraint."""
        self._check_order()

    def __call__(self, source: Any) -> Any:  # a module
        """Run the passes on ``source``."""
        self.validate()
        for each in self.passes:
            source = each(source)
        return source
