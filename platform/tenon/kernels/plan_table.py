"""``backend.plans``: the plan of an op is built at its first call on the backend and cached."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tenon.engine.op import Kind, Op
from tenon.engine.plans import ANY, BY_DTYPE, VIEW, Keeps, Mask, Plan
from tenon.engine.value import Value
from tenon.kernels.following import following, plain
from tenon.kernels.order import ordered
from tenon.kernels.promotion import unify
from tenon.kernels.rounding import Kernel


def _arity(op: Op) -> int:
    """Return the number of operands of a simple op, or ``VIEW`` or ``ANY``, by which dispatch runs it."""
    if not op.simple or op.variadic:
        return ANY
    if op.view:
        return VIEW if len(op.inputs) == 1 and op.promotion is None else ANY
    return len(op.inputs)


def _saved_inputs(op: Op) -> Keeps:
    """Return masks of the inputs of ``op`` that the tape saves; see ``engine/plans.py``."""
    names, saves, reads = [n.lstrip("*") for n in op.inputs], op.saves, op.reads

    def masked(saved: Collection[str]) -> Mask:
        mask = tuple(n in saved for n in names)
        return True if mask and all(mask) else mask if any(mask) else None

    if not reads:
        return masked(saves)
    masks = {}
    for bits in range(1, 1 << len(names)):
        needed = {r for i, n in enumerate(names) if bits >> i & 1 for r in reads.get(n, saves)}
        masks[bits] = masked(needed)
    return masks


class PlanTable(dict[Op, Plan]):
    """The plans of one backend; each is built when its op is first looked up."""

    def __init__(self, backend: Any) -> None:  # a Backend, whose module imports this one
        super().__init__()
        self.backend = backend

    def __missing__(self, op: Op) -> Plan:
        backend = self.backend
        plan = Plan()
        plan.op, plan.result = op, backend.tensor_type or Value.plain
        kernels = backend.kernels[op], backend.short_kernels[op]
        plan.kernel, plan.short_kernel = self._with_memory_format(op, kernels)
        plan.value_kernel, plan.short_value_kernel = plan.kernel, plan.short_kernel
        if op.residuals:
            kernels = backend.for_values(op, kernels[0]), backend.for_values(op, kernels[1])
            plan.value_kernel, plan.short_value_kernel = self._with_memory_format(op, kernels)
        plan.promotion, plan.unify, plan.arity = op.promotion, unify, _arity(op)
        plan.new_array = op.simple and not op.view
        plan.gradient = BY_DTYPE if op.integral else op.differentiable
        plan.keeps, plan.saves_out = _saved_inputs(op), op.saves_out
        plan.joint, plan.rules, plan.residuals = op.joint, op.rules, op.residuals
        plan.several = op.outputs != 1
        several = op.kind is Kind.ELEMENTWISE and len(op.inputs) > 1
        plan.layout = ordered if several and not op.follows and backend.xp is not None else None
        self[op] = plan
        return plan

    def _with_memory_format(self, op: Op, kernels: tuple[Kernel, Kernel]) -> tuple[Kernel, Kernel]:
        """Return ``kernels``, wrapped to propagate the input's memory format, or to return C order, if ``op``
        declares that."""
        if op.plain and self.backend.xp is not None:
            return plain(kernels[0], self.backend.xp), plain(kernels[1], self.backend.xp)
        if not op.follows:
            return kernels
        return following(kernels[0], op, self.backend.xp), following(kernels[1], op, self.backend.xp)
