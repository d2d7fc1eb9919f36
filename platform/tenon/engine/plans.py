"""``backend.plans[op]``: all that dispatch, tape and sweep read of an op on a backend, in one look-up.

Every op is a class of its own, and reading six attributes of ever-changing classes took 0.2 us a call; a
plan is always of the one class ``Plan``, whose slots CPython reads as fast as a tuple's items.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.engine.following import following, plain
from tenon.engine.op import Kind, Op

#: ``Plan.gradient`` of an op whose output may have an integer dtype, through which no gradient flows.
BY_DTYPE = 2
#: ``Plan.arity`` of an op that needs the general ``dispatch.run``; of one that returns a view of its input.
ANY, VIEW = 0, -1


class Plan:
    """The static facts of an op on a backend: kernels, promotion, what to save, gradient rules."""

    __slots__ = (
        "arity", "gradient", "joint", "keeps", "kernel", "lays_out", "new_array", "op", "promotion",
        "residuals", "rules", "saves_out", "several", "short_kernel", "short_value_kernel", "value_kernel",
    )  # fmt: skip

    op: Op
    #: Computes the op on arrays; ``short_kernel`` on 16-bit floats.
    kernel: Callable[..., Any]
    short_kernel: Callable[..., Any]
    #: The same for calls that do not need the op's residuals.
    value_kernel: Callable[..., Any]
    short_value_kernel: Callable[..., Any]
    #: ``op.promotion``.
    promotion: str | None
    #: The number of inputs if the op returns one new array; else ``ANY`` or ``VIEW``.
    arity: int
    #: Whether the op has one output, which is not a view, and no residuals.
    new_array: bool
    #: Whether the op has a gradient; ``BY_DTYPE`` where the output's dtype decides.
    gradient: bool | int
    #: Inputs that the tape saves: None, True (all), a mask, or {bit set of inputs that require grad: mask}.
    keeps: Any
    #: Whether the tape saves the output.
    saves_out: bool
    #: The gradient rule of all inputs together (``vjp_joint``), or one rule per input.
    joint: Callable[..., Any] | None
    rules: tuple[Callable[..., Any] | None, ...]
    #: Whether the number of outputs is not one.
    several: bool
    #: The number of hidden outputs that the gradient rules need.
    residuals: int
    #: Whether ``order.ordered`` chooses the memory layout of the result.
    lays_out: bool


def _arity(op: Op) -> int:
    if not op.simple or op.variadic:
        return ANY
    if op.view:
        return VIEW if len(op.inputs) == 1 and op.promotion is None else ANY
    return len(op.inputs)


class PlanTable(dict[Op, Plan]):
    """The plans of one backend, built at the first look-up of an op."""

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
        """``kernels``, wrapped to propagate or to drop the input's memory format where ``op`` declares it."""
        if op.plain and self.backend.xp is not None:
            return plain(kernels[0], self.backend.xp), plain(kernels[1], self.backend.xp)
        if not op.follows:
            return kernels
        return following(kernels[0], op, self.backend.xp), following(kernels[1], op, self.backend.xp)
