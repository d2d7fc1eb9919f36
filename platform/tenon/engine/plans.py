"""``backend.plans[op]``: all that dispatch, tape and sweep ask of an op on a backend, in one look-up.

Every op is a class of its own, and reading six attributes off ever-changing classes took 0.2 us a call; a
plan is always of the one class ``Plan``, whose slots CPython reads as quickly as a tuple's places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.engine.following import following, plain
from tenon.engine.op import Kind, Op

#: ``Plan.gradient`` of an op whose output may have an integer dtype, through which no gradient flows.
BY_DTYPE = 2
#: ``Plan.arity`` of an op that dispatch has to look at more closely; of one that gives a view of its input.
ANY, VIEW = 0, -1


class Plan:
    """What is known of an op on a backend before it is called."""

    __slots__ = (
        "arity", "gradient", "joint", "keeps", "kernel", "lays_out", "new_array", "op", "promotion",
        "residuals", "rules", "saves_out", "several", "short_kernel", "short_value_kernel", "value_kernel",
    )  # fmt: skip

    op: Op
    #: Computes the op on arrays; ``short_kernel`` on floats of 16 bits.
    kernel: Callable[..., Any]
    short_kernel: Callable[..., Any]
    #: The same where nobody will need the op's residuals.
    value_kernel: Callable[..., Any]
    short_value_kernel: Callable[..., Any]
    #: ``op.promotion``.
    promotion: str | None
    #: How many inputs, where the op gives one new array; else ``ANY`` or ``VIEW``.
    arity: int
    #: One output, which is no view, and no residuals.
    new_array: bool
    #: Whether the op has a gradient; ``BY_DTYPE`` where the output's dtype decides.
    gradient: bool | int
    #: What the tape keeps of the inputs: None, True (all), a mask, or {inputs that need a gradient: mask}.
    keeps: Any
    #: Whether the tape keeps the output.
    saves_out: bool
    #: The gradient rule of all inputs together, or the rules of each.
    joint: Callable[..., Any] | None
    rules: tuple[Callable[..., Any] | None, ...]
    #: Other than one output.
    several: bool
    #: How many hidden outputs the gradient needs.
    residuals: int
    #: Whether ``order.ordered`` decides in which order the axes of its result lie in memory.
    lays_out: bool


def _arity(op: Op) -> int:
    if not op.simple or op.variadic:
        return ANY
    if op.view:
        return VIEW if len(op.inputs) == 1 and op.promotion is None else ANY
    return len(op.inputs)


class PlanTable(dict[Op, Plan]):
    """The plan of every op on one backend, made when first asked for."""

    def __init__(self, backend: Any) -> None:
        super().__init__()
        self.backend = backend

    def __missing__(self, op: Op) -> Plan:
        backend = self.backend
        plan = Plan()
        plan.op = op
        kernels = backend.kernels[op], backend.short_kernels[op]
        plan.kernel, plan.short_kernel = self._laid_out(op, kernels)
        plan.value_kernel, plan.short_value_kernel = plan.kernel, plan.short_kernel
        if op.residuals:
            kernels = backend.for_values(op, kernels[0]), backend.for_values(op, kernels[1])
            plan.value_kernel, plan.short_value_kernel = self._laid_out(op, kernels)
        plan.promotion, plan.arity = op.promotion, _arity(op)
        plan.new_array = op.simple and not op.view
        plan.gradient = BY_DTYPE if op.integral else op.differentiable
        plan.keeps, plan.saves_out = op.keeps, op.saves_out
        plan.joint, plan.rules, plan.residuals = op.joint, op.rules, op.residuals
        plan.several = op.outputs != 1
        plan.lays_out = (
            op.kind is Kind.ELEMENTWISE and len(op.inputs) > 1 and not op.follows and backend.xp is not None
        )
        self[op] = plan
        return plan

    def _laid_out(self, op: Op, kernels: tuple[Any, Any]) -> tuple[Any, Any]:
        """``kernels``, whose results keep their input's memory format, or never do, where ``op`` says so."""
        if op.plain and self.backend.xp is not None:
            return plain(kernels[0], self.backend.xp), plain(kernels[1], self.backend.xp)
        if not op.follows:
            return kernels
        return following(kernels[0], op, self.backend.xp), following(kernels[1], op, self.backend.xp)
