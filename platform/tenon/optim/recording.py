"""Trace an elementwise update rule with symbolic arrays, and record its ops.

The rule is traced at every step, so scalars (learning rate, step count) and branches on them are always
current. Only ops on arrays are recorded; they are the key of the compiled kernel, so a rule that takes
another branch selects another kernel. Unsupported operations (NumPy called directly, the shape or truth value
of an array, an op with attributes, assignment into an array) raise ``NotFusableError`` or ``TypeError``, and
the rule runs on the arrays themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import numpy as np

from tenon.engine.op import Composite, table
from tenon.engine.types import Operand
from tenon.errors import NotFusableError
from tenon.kernels.expressions import is_exact

if TYPE_CHECKING:
    from tenon.graph.cluster import Cluster, Value


class _Exactness(dict[str, bool]):
    """Cache: op name -> whether its fused results equal the array library's bit for bit."""

    def __missing__(self, name: str) -> bool:
        exact = self[name] = is_exact(table.by_name[name])
        return exact


_EXACT = _Exactness()
#: Exponents that the array library computes by products and square roots.
_POWERS = frozenset({2, 0.5, -1, 1})
#: An operand of a recorded op: the index of a value, ``-1 - i`` for number ``i``, ``("power", exponent)``
#: for an exponent that is part of the op, or None for an argument that is left out.
RecordedOperand: TypeAlias = int | tuple[str, float] | None
#: ``(name, *operands)``.
RecordedOp: TypeAlias = tuple[str, *tuple[RecordedOperand, ...]]
_Operator: TypeAlias = "Callable[[SymbolicArray, Operand], SymbolicArray]"


class Recording:
    """The ops that a rule runs, on ``inputs`` symbolic arrays.

    Values are numbered: the inputs first, then the result of each op. ``exact`` is whether the fused ops
    return the array library's results bit for bit.
    """

    __slots__ = ("exact", "inputs", "numbers", "ops")

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.ops: list[RecordedOp] = []
        self.numbers: list[float] = []
        self.exact = True

    def arrays(self) -> list[SymbolicArray]:
        """Return the symbolic arrays of the inputs."""
        return [SymbolicArray(self, i) for i in range(self.inputs)]

    def record(self, name: str, args: tuple[Operand, ...]) -> SymbolicArray:
        """Record one op on symbolic arrays and numbers; return its symbolic result."""
        operands: list[RecordedOperand] = []
        for a in args:
            kind = a.__class__
            if kind is SymbolicArray:
                if a.recording is not self:
                    raise NotFusableError(f"{name} got an array of another step; rules must be pure.")
                operands.append(a.index)
            elif kind is float or kind is int:
                self.numbers.append(a)
                operands.append(-len(self.numbers))
            elif a is None:
                operands.append(None)
            else:
                raise NotFusableError(f"{name} of {kind.__name__} is not recorded.")
        if name == "pow" and args[1].__class__ is not SymbolicArray and args[1] in _POWERS:
            operands[1] = ("power", self.numbers.pop())
        elif not _EXACT[name]:
            self.exact = False
        self.ops.append((name, *operands))
        return SymbolicArray(self, self.inputs + len(self.ops) - 1)


def _binary(name: str) -> tuple[_Operator, _Operator]:
    def forward(self: SymbolicArray, other: Operand) -> SymbolicArray:
        return self.recording.record(name, (self, other))

    def reflected(self: SymbolicArray, other: Operand) -> SymbolicArray:
        return self.recording.record(name, (other, self))

    return forward, reflected


def _refused(self: SymbolicArray, other: object) -> NoReturn:
    raise NotFusableError("a rule that changes an array in place is not recorded.")


class SymbolicArray:
    """A symbolic array of unknown shape."""

    __slots__ = ("index", "recording")
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, recording: Recording, index: int) -> None:
        self.recording = recording
        self.index = index

    __add__, __radd__ = _binary("add")
    __sub__, __rsub__ = _binary("sub")
    __mul__, __rmul__ = _binary("mul")
    __truediv__, __rtruediv__ = _binary("div")
    __pow__, __rpow__ = _binary("pow")
    __lt__, __gt__ = _binary("lt")[0], _binary("gt")[0]
    __le__, __ge__ = _binary("le")[0], _binary("ge")[0]
    __eq__, __ne__ = _binary("eq")[0], _binary("ne")[0]  # type: ignore[assignment]
    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ipow__ = _refused

    def __neg__(self) -> SymbolicArray:
        return self.recording.record("neg", (self,))

    def __abs__(self) -> SymbolicArray:
        return self.recording.record("abs", (self,))

    def __bool__(self) -> bool:
        raise NotFusableError("a rule that evaluates the truth of an array is not recorded.")

    def __getattr__(self, name: str) -> NoReturn:
        raise NotFusableError(f"a rule that reads an array's {name!r} is not recorded.")


class _Ops:
    """The namespace ``f`` that rules receive while they are traced."""

    def __getattr__(self, name: str) -> Callable[..., SymbolicArray]:
        if name.startswith("__") or name not in table.by_name or name == "pow":
            raise NotFusableError(f"{name!r} is not recorded.")
        op = table.by_name[name]

        def call(*args: Operand, **attrs: object) -> SymbolicArray:
            for a in args:
                if a.__class__ is SymbolicArray:
                    text = op.expression_for(args, attrs)
                    if attrs or (text is None and not isinstance(op, Composite)):
                        break
                    if text is None:
                        return op.decompose(self, *args)  # type: ignore[attr-defined]
                    return a.recording.record(name, args)
            raise NotFusableError(f"this call of {name} cannot be recorded.")

        function: Callable[..., SymbolicArray] = call
        if op.expression is not None:

            def direct(*args: Operand) -> SymbolicArray:
                for a in args:
                    if a.__class__ is SymbolicArray:
                        return a.recording.record(name, args)
                raise NotFusableError(f"{name} of no array is not recorded.")

            function = direct
        setattr(self, name, function)
        return function


OPS = _Ops()


def cluster_of(recording: Recording, dtype: np.dtype, outputs: tuple[int, ...]) -> Cluster:
    """Return the fusable cluster of the recorded ops, for arrays of ``dtype``."""
    from tenon.graph.cluster import Builder  # imported here: only fused optimizers need it

    builder = Builder()
    values: list[Value] = [builder.input((2,), dtype) for _ in range(recording.inputs)]
    numbers = [builder.number() for _ in recording.numbers]
    for name, *operands in recording.ops:
        args: list[Value | float | None] = []
        for position, o in enumerate(operands):
            if isinstance(o, tuple):
                args.append(o[1])
            elif o is None or o >= 0:
                args.append(None if o is None else values[o])
            elif position < table.by_name[name].promoted_from:
                raise NotFusableError(f"{name} with a number as its condition is not recorded.")
            else:
                args.append(numbers[-1 - o])
        values.append(builder.apply(table.by_name[name], tuple(args), {}))
    for i in outputs:
        if values[i].dtype != dtype:
            raise NotFusableError(f"a rule that makes {values[i].dtype} of {dtype} is not recorded.")
    return builder.build([values[i] for i in outputs])
