"""``backend.plans[op]``: all that dispatch, tape and sweep read of an op on a backend, in one look-up.

Every op is a class of its own, and reading six attributes of ever-changing classes took 0.2 us a call; a
plan is always of the one class ``Plan``, whose slots CPython reads as fast as a tuple's items.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from tenon.engine.aval import Shape
from tenon.engine.op import Op
from tenon.engine.types import Arguments, Array, ArrayNamespace, NumpyDType, OpFunction, OpNamespace

if TYPE_CHECKING:
    from tenon.device import Device
    from tenon.engine.value import Value

#: Which inputs the tape saves: all (True), those that are true here, or none (None).
Mask: TypeAlias = Literal[True] | tuple[bool, ...] | None
#: The same for every call, or by the bit set of the inputs that require a gradient.
Keeps: TypeAlias = Mask | dict[int, Mask]

#: ``Plan.gradient`` of an op whose output may have an integer dtype, through which no gradient flows.
BY_DTYPE = 2
#: ``Plan.arity`` of an op that needs the general ``dispatch.run``; of one that returns a view of its input.
ANY, VIEW = 0, -1


class EngineBackend(Protocol):
    """What the engine reads of a backend; ``kernels/backend.py:Backend`` has it."""

    #: The class of arrays; ``as_array`` turns other results of kernels into one.
    array_type: type
    #: The class of tensors that wrap its arrays; None for ``Value.plain``, which is Tensor.
    tensor_type: type[Value] | None
    #: The array namespace; None if the backend has none that is NumPy-like.
    xp: ArrayNamespace
    plans: dict[Op, Plan]
    #: The kernels as functions of arrays: ``f`` of rules in a first-order pass; ``short_raw`` for 16 bits.
    raw: OpNamespace
    short_raw: OpNamespace

    def gather_arguments(self, op: Op, args: Arguments) -> Arguments | None:
        """``args``, which other backends have too, as arguments of one backend; None: the default rule."""
        ...

    def as_array(self, value: object) -> Array:
        """``value``, a result of a kernel, as an array."""
        ...

    def empty(self, shape: Shape, dtype: NumpyDType, device: Device) -> Array:
        """An array with undefined contents."""
        ...

    def device_of(self, array: Array) -> Device:
        """The device of ``array``."""
        ...

    def shares_memory(self, a: Array, b: Array) -> bool:
        """Whether ``a`` and ``b`` share memory."""
        ...


class Plan:
    """The static facts of an op on a backend: kernels, promotion, what to save, gradient rules."""

    __slots__ = (
        "arity", "gradient", "joint", "keeps", "kernel", "layout", "new_array", "op", "promotion",
        "residuals", "result", "rules", "saves_out", "several", "short_kernel", "short_value_kernel", "unify",
        "value_kernel",
    )  # fmt: skip

    op: Op
    #: The class of results.
    result: type
    #: Computes the op on arrays; ``short_kernel`` on 16-bit floats.
    kernel: OpFunction
    short_kernel: OpFunction
    #: The same for calls that do not need the op's residuals.
    value_kernel: OpFunction
    short_value_kernel: OpFunction
    #: ``op.promotion``.
    promotion: str | None
    #: ``unify(op, args)`` casts the arguments to their common dtype by that rule.
    unify: Callable[[Op, Arguments], Arguments]
    #: The number of inputs if the op returns one new array; else ``ANY`` or ``VIEW``.
    arity: int
    #: Whether the op has one output, which is not a view, and no residuals.
    new_array: bool
    #: Whether the op has a gradient; ``BY_DTYPE`` where the output's dtype decides.
    gradient: bool | int
    #: Inputs that the tape saves: None, True (all), a mask, or {bit set of inputs that require grad: mask}.
    keeps: Keeps
    #: Whether the tape saves the output.
    saves_out: bool
    #: The gradient rule of all inputs together (``vjp_joint``), or one rule per input.
    joint: OpFunction | None
    rules: tuple[OpFunction | None, ...]
    #: Whether the number of outputs is not one.
    several: bool
    #: The number of hidden outputs that the gradient rules need.
    residuals: int
    #: ``layout(kernel, arrays, attrs)`` calls a kernel on operands in memory order, where the order of the
    #: result's axes depends on several of them; None where the kernel decides.
    layout: OpFunction | None
