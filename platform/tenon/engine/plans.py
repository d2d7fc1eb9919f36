"""``plans[op]``: all that dispatch, tape and sweep ask of an op on a backend, in one look-up."""

from __future__ import annotations

from typing import Any

from tenon.engine.following import following, plain
from tenon.engine.op import Kind, Op

#: Everything dispatch, tape and sweep ask of an op, so that it costs one look-up: every op is a class of its
#: own, and reading six attributes off ever-changing classes took 0.2 us. In order: the kernel; ``promotion``;
#: one output, no residual, no view; differentiable (2 where the output's dtype decides); what the tape keeps
#: (``op._keeps``); the op; ``joint``; ``rules``; not exactly one output; ``residuals``; whether its
#: arithmetic may overflow; ``_operands(op)``; whether it saves its output; the kernel for floats of 16 bits;
#: both kernels for calls whose residuals nobody will need; whether ``order.py`` lays its results.
Plan = tuple[Any, ...]


def _operands(op: Op) -> int:
    """How many inputs ``op`` has; -1 for one of which it gives a view; 0 for all that dispatch has to look at
    more closely."""
    if not op.simple or op.variadic:
        return 0
    if op.view:
        return -1 if len(op.inputs) == 1 and op.promotion is None else 0
    return len(op.inputs)


class PlanTable(dict[Op, Plan]):
    """The plan of every op on one backend, made when first asked for."""

    def __init__(self, backend: Any) -> None:
        super().__init__()
        self.backend = backend

    def __missing__(self, op: Op) -> Plan:
        plain, short = self._kept(op, (self.backend.kernels[op], self.backend.short_kernels[op]))
        plan = self[op] = (
            plain, op.promotion, op.simple and not op.view,
            2 if op.integral else op.differentiable, op.keeps, op,
            op.joint, op.rules, op.outputs != 1, op.residuals, not op.view,
            _operands(op), op.saves_out, short, *self._kept(op, self._for_values(op)),
            op.kind is Kind.ELEMENTWISE and len(op.inputs) > 1 and not op.follows
            and self.backend.xp is not None,
        )  # fmt: skip
        return plan

    def _kept(self, op: Op, kernels: tuple[Any, Any]) -> tuple[Any, Any]:
        """``kernels``, whose results keep their input's memory format, or never do, where ``op`` says so."""
        if op.plain and self.backend.xp is not None:
            return plain(kernels[0], self.backend.xp), plain(kernels[1], self.backend.xp)
        if not op.follows:
            return kernels
        return following(kernels[0], op, self.backend.xp), following(kernels[1], op, self.backend.xp)

    def _for_values(self, op: Op) -> tuple[Any, Any]:
        backend = self.backend
        kernels = backend.kernels[op], backend.short_kernels[op]
        if not op.residuals:
            return kernels
        return backend.for_values(op, kernels[0]), backend.for_values(op, kernels[1])
