"""``backend.plans[op]``: all that dispatch, tape and sweep read of an op on a backend, in one look-up.

Every op is a class of its own, and reading six attributes of ever-changing classes took 0.2 us a call; a
plan is always of the one class ``Plan``, whose slots CPython reads as fast as a tuple's items.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.engine.op import Op

#: ``Plan.gradient`` of an op whose output may have an integer dtype, through which no gradient flows.
BY_DTYPE = 2
#: ``Plan.arity`` of an op that needs the general ``dispatch.run``; of one that returns a view of its input.
ANY, VIEW = 0, -1


class Plan:
    """The static facts of an op on a backend: kernels, promotion, what to save, gradient rules."""

    __slots__ = (
        "arity", "gradient", "joint", "keeps", "kernel", "layout", "new_array", "op", "promotion",
        "residuals", "rules", "saves_out", "several", "short_kernel", "short_value_kernel", "unify",
        "value_kernel",
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
    #: ``unify(op, args)`` casts the arguments to their common dtype by that rule.
    unify: Callable[[Op, tuple[Any, ...]], tuple[Any, ...]]
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
    #: ``layout(kernel, arrays, attrs)`` calls a kernel on operands in memory order, where the order of the
    #: result's axes depends on several of them; None where the kernel decides.
    layout: Callable[..., Any] | None
