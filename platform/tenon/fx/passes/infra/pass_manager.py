"""``PassManager``: run passes in an order that satisfies constraints, with checks."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any, TypeAlias

from tenon.fx.passes.infra.pass_base import PassResult
from tenon.nn.module import Module

__all__ = ["PassManager", "pass_result_wrapper", "this_before_that_pass_constraint"]

logger = logging.getLogger(__name__)

Pass: TypeAlias = Callable[..., Any]  # returns a PassResult or None
#: Whether its first argument, a pass, may run before the second.
Constraint: TypeAlias = Callable[[Pass, Pass], bool]


def pass_result_wrapper(fn: Pass) -> Callable[..., PassResult | None]:
    """Return ``fn`` as a pass whose result, None or a module, is converted to a ``PassResult``."""
    if fn is None:
        raise TypeError("pass_result_wrapper needs a function, got None.")

    @functools.wraps(fn)
    def wrapped(gm: Module) -> PassResult | None:
        result = fn(gm)
        if result is None:
            return PassResult(gm, True)
        if isinstance(result, PassResult):
            return result
        if isinstance(result, Module):
            return PassResult(result, True)
        raise TypeError(
            f"pass {_name(fn)} returned a {type(result).__name__}: a pass returns a module, a"
            " PassResult or None."
        )

    if not inspect.isfunction(fn):
        wrapped.__name__ = str(type(fn).__name__)
    return wrapped


def this_before_that_pass_constraint(this: Pass, that: Pass) -> Constraint:
    """Return the constraint that ``this`` runs before ``that``."""

    def may_come_first(a: Pass, b: Pass) -> bool:
        return a is not that or b is not this

    return may_come_first


def _name(fn: object) -> str:
    return str(getattr(fn, "__name__", type(fn).__name__))


def _validate_pass_schedule_constraint(constraint: Constraint, passes: list[Pass]) -> None:
    """Raise RuntimeError if the order of two passes violates the constraint."""
    for i, first in enumerate(passes):
        for j, second in enumerate(passes[i + 1 :], i + 1):
            if not constraint(first, second):
                raise RuntimeError(
                    f"pass schedule constraint violated. Expected {_name(second)} before {_name(first)} but"
                    f" found {_name(first)} at index {i} and {_name(second)} at index {j} in pass list."
                )


def _topological_sort_passes(passes: list[Pass], constraints: list[Constraint]) -> list[Pass]:
    """Return the passes in an order that satisfies all constraints, close to the given one; RuntimeError if
    there is none."""
    count = len(passes)
    before = [
        [i for i in range(count) if i != j and not all(c(passes[j], passes[i]) for c in constraints)]
        for j in range(count)
    ]
    done: list[int] = []
    while len(done) < count:
        ready = [j for j in range(count) if j not in done and all(i in done for i in before[j])]
        if not ready:
            cycle = [_name(passes[j]) for j in range(count) if j not in done]
            raise RuntimeError(f"Circular dependency detected within the following passes: {cycle}")
        done.append(ready[0])
    return [passes[j] for j in done]


class PassSchedule:
    """Passes, and constraints on their order: the base class of both pass managers."""

    def __init__(self, passes: list[Pass] | None = None, constraints: list[Constraint] | None = None) -> None:
        self.passes: list[Pass] = passes or []
        self.constraints: list[Constraint] = constraints or []
        self._validated = False

    def add_pass(self, _pass: Pass) -> None:
        """Append a pass."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Constraint) -> None:
        """Add a constraint on the order of passes."""
        self.constraints.append(constraint)
        self._validated = False

    def _check_order(self) -> None:
        """Raise RuntimeError if the order of the passes violates a constraint."""
        if self._validated:
            return
        for constraint in self.constraints:
            _validate_pass_schedule_constraint(constraint, self.passes)
        self._validated = True


class PassManager(PassSchedule):
    """Runs passes on a module, up to ``steps`` times, until none of them changes it.

    ``add_checks`` sets a function that checks the module at the end, and with ``run_checks_after_each_pass``
    after each pass. It raises an error for an invalid module; ``suppress_check_failures`` logs the error
    instead.

    >>> import tenon
    >>> def negate(gm):
    ...     for node in gm.graph.find_nodes(op="call_function", target=tenon.relu):
    ...         node.target = tenon.neg
    ...     gm.recompile()
    ...     return PassResult(gm, True)
    >>> result = PassManager([negate])(tenon.fx.symbolic_trace(lambda x: tenon.relu(x)))
    >>> result.graph_module(tenon.tensor([1.0])).tolist()
    [-1.0]
    """

    def __init__(
        self,
        passes: list[Pass] | None = None,
        constraints: list[Constraint] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ) -> None:
        super().__init__(passes, constraints)
        self.steps = steps or 1
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures

    def validate_constraints(self) -> None:
        """Raise RuntimeError if the order of the passes violates a constraint."""
        self._check_order()

    def solve_constraints(self) -> None:
        """Sort the passes so that the constraints are satisfied; RuntimeError if that is impossible."""
        self.passes = _topological_sort_passes(self.passes, self.constraints)
        self._validated = True

    def add_checks(self, check: Callable[[Module], None]) -> None:
        """Check the module by ``check(module)``; TypeError for a function with other parameters."""
        parameters = list(inspect.signature(check).parameters.values())
        if len(parameters) != 1:
            raise TypeError(
                f"PassManager check function should only take in one variable, a module; {_name(check)} takes"
                f" {[p.name for p in parameters]}."
            )
        self.check = check  # type: ignore[assignment,method-assign]

    def check(self, module: Module) -> None:
        """Check the module; this default accepts every module, ``add_checks`` replaces it."""

    def _checked(self, module: Module) -> None:
        try:
            self.check(module)
        except Exception:
            if not self.suppress_check_failures:
                raise
            logger.exception("a check of the module has failed")

    def __call__(self, module: Module) -> PassResult:
        """Run the passes on ``module``."""
        if not self._validated:
            self.solve_constraints()
        self._checked(module)
        ever_modified = False
        for step in range(self.steps):
            modified = False
            for index, fn in enumerate(self.passes):
                logger.debug("Running pass %r", _name(fn))
                done = [_name(p) for p in self.passes[:index]]
                try:
                    result = fn(module)
                except Exception as error:
                    raise RuntimeError(
                        f"An error occurred when running the {_name(fn)!r} pass after the following passes:"
                        f" {done}: {type(error).__name__}: {error}"
                    ) from error
                if not hasattr(result, "graph_module"):
                    raise TypeError(
                        f"The result of the pass {_name(fn)} should be type PassResult, not"
                        f" {type(result).__name__}. Please wrap it with pass_result_wrapper()"
                    )
                module, modified = result.graph_module, modified or result.modified
                if self.run_checks_after_each_pass:
                    self._checked(module)
            ever_modified = ever_modified or modified
            if not modified:
                logger.debug("no pass has changed anything in step %d", step)
                break
        self._checked(module)
        return PassResult(module, ever_modified)
