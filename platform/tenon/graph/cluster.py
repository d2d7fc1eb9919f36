"""``Cluster``: a few ops that run as one kernel, described without reference to any backend.

Steps are elementwise ops (with an ``expression``), reductions, and ``reshape`` and ``expand`` that only add,
drop or repeat axes of size 1; each comes after those that it reads. Shapes and dtypes are static; a *number*
input is a Python float that may differ from call to call (a learning rate).

``Builder`` builds one: ``builder.apply(op, args, attrs)`` appends an op, or the parts of a composite.
``Compiler.fuse(cluster)`` compiles one to a kernel called as ``kernel(*inputs, *outputs)``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tenon.engine.aval import Aval, Shape
from tenon.engine.op import Composite, Op, table
from tenon.engine.types import Attrs, Operand
from tenon.errors import NotFusableError
from tenon.kernels.shapes import broadcast_shapes, reduced_shape
from tenon.ops.movement import Expand, Reshape

#: Ops that a cluster may have if they only add, drop or repeat axes of size 1.
MOVES = (Reshape, Expand)
_BOOL, _FLOAT64 = np.dtype(np.bool_), np.dtype(np.float64)
_NUMBERS = (bool, int, float)


class Ref(NamedTuple):
    """A reference to value number ``index`` of a cluster: the inputs first, then the results of the steps."""

    index: int  # type: ignore[assignment]


#: An argument of a step: a ``Ref``, a Python number, or None where an optional one is left out.
StepArgument: TypeAlias = Ref | float | None


@dataclass(frozen=True, slots=True)
class Step:
    """One op of a cluster."""

    #: The op's name.
    op: str
    #: References to values, numbers and None.
    args: tuple[StepArgument, ...]
    #: The op's attrs as sorted ``(name, value)`` pairs.
    attrs: tuple[tuple[str, Any], ...]
    #: Shape and dtype of the result.
    aval: Aval
    #: The op's formula (``kernels/expressions.py``); "" for reductions and movements.
    expression: str = ""
    #: The dtype of the arithmetic: the common dtype of the operands.
    computed: np.dtype | None = None
    #: Whether it is a reduction.
    reduces: bool = False

    @property
    def definition(self) -> Op:
        """The op of that name."""
        return table[self.op]

    @property
    def moves(self) -> bool:
        """Whether it only adds, drops or repeats axes of size 1."""
        return not self.expression and not self.reduces

    @property
    def refs(self) -> list[Ref]:
        """The values that the step reads."""
        return [a for a in self.args if isinstance(a, Ref)]

    def attr(self, name: str) -> Any:  # of the type that the op states
        """Return the value of an attr; None if it is not among ``attrs``."""
        return dict(self.attrs).get(name)


@dataclass(frozen=True)
class Cluster:
    """Inputs, steps and outputs. Clusters are immutable and hashable.

    >>> builder = Builder()
    >>> x, rate = builder.input((2, 3), np.float32), builder.number()
    >>> print(builder.build([-(x * rate)]))
    %0: float32[2, 3]
    %1: number
    %2: float32[2, 3] = mul(%0, %1)
    %3: float32[2, 3] = neg(%2)
    return %3
    """

    inputs: tuple[Aval, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Ref, ...]
    #: The indices of inputs that are Python floats.
    numbers: frozenset[int] = frozenset()

    @functools.cached_property
    def key(self) -> int:
        """The hash, computed once."""
        return hash((self.inputs, self.steps, self.outputs, self.numbers))

    def __hash__(self) -> int:
        return self.key

    def aval(self, ref: Ref) -> Aval:
        """Return shape and dtype of a value."""
        n = len(self.inputs)
        return self.inputs[ref.index] if ref.index < n else self.steps[ref.index - n].aval

    def step(self, ref: Ref) -> Step | None:
        """Return the step that computes a value; None for an input."""
        n = len(self.inputs)
        return None if ref.index < n else self.steps[ref.index - n]

    @property
    def reduces(self) -> bool:
        """Whether any step is a reduction."""
        return any(s.reduces for s in self.steps)

    def lines(self, names: Sequence[str]) -> list[str]:
        """Return a line of text for each step, and one for the outputs; ``names`` names inputs, then
        steps."""
        n = len(self.inputs)
        lines = []
        for name, step in zip(names[n:], self.steps, strict=True):
            parts = [names[a.index] if isinstance(a, Ref) else repr(a) for a in step.args]
            parts += [f"{k}={v!r}" for k, v in step.attrs]
            lines.append(f"{name}: {step.aval!r} = {step.op}({', '.join(parts)})")
        return [*lines, "return " + ", ".join(names[r.index] for r in self.outputs)]

    def __str__(self) -> str:
        names = [f"%{i}" for i in range(len(self.inputs) + len(self.steps))]
        inputs = [
            f"{names[i]}: {'number' if i in self.numbers else repr(a)}" for i, a in enumerate(self.inputs)
        ]
        return "\n".join(inputs + self.lines(names))


class Builder:
    """Builds a cluster: declare the inputs, apply ops to them, and ``build`` with the outputs."""

    def __init__(self) -> None:
        self.inputs: list[Aval] = []
        self.numbers: set[int] = set()
        self.steps: list[Step] = []

    def input(self, shape: Shape, dtype: npt.DTypeLike) -> Value:
        """Add an array input and return its value. Inputs are added before the first op."""
        return self._input(Aval(tuple(shape), np.dtype(dtype)))

    def number(self) -> Value:
        """Add an input that is a Python float, and return its value."""
        self.numbers.add(len(self.inputs))
        return self._input(Aval((), _FLOAT64))

    def _input(self, aval: Aval) -> Value:
        if self.steps:
            raise NotFusableError("an input was added after an op; add all inputs of a cluster first.")
        self.inputs.append(aval)
        return Value(self, Ref(len(self.inputs) - 1), aval, weak=len(self.inputs) - 1 in self.numbers)

    def build(self, outputs: Sequence[Value]) -> Cluster:
        """Return the cluster that computes ``outputs``, without steps that they do not need."""
        cluster = Cluster(
            tuple(self.inputs), tuple(self.steps), tuple(o.ref for o in outputs), frozenset(self.numbers)
        )
        return without_dead_steps(cluster)

    def apply(self, op: Op, args: tuple[Operand, ...], attrs: Attrs) -> Operand:
        """Append ``op`` and return its value, or a tuple of them; NotFusableError if it cannot be fused."""
        name = op.name
        text = op.expression_for(args, attrs)
        if text is not None:
            return self._elementwise(op, text, args, attrs)
        if op.joined_by:
            return self._reduction(name, args[0], attrs)
        if isinstance(op, MOVES):
            return self._movement("expand" if isinstance(op, Expand) else "reshape", args[0], attrs)
        if isinstance(op, Composite):
            return self._parts(op, args, attrs)
        raise NotFusableError(f"op {name!r} has no expression and no parts, so it cannot be fused.")

    def _parts(self, op: Composite, args: tuple[Operand, ...], attrs: Attrs) -> Value | tuple[Value, ...]:
        """Append the parts of a composite."""
        f = Namespace(self)
        result = op.raw_forward(f, *args, **attrs) if op.residuals else op.decompose(f, *args, **attrs)
        return tuple(map(self._checked, result)) if isinstance(result, tuple) else self._checked(result)

    def _checked(self, value: object) -> Value:
        if isinstance(value, Value):
            return value
        raise NotFusableError(f"a part of a cluster is {value!r}, not an array; exclude it.")

    def _elementwise(self, op: Op, text: str, args: tuple[Operand, ...], attrs: Attrs) -> Value:
        name = op.name
        values = [a for a in args if isinstance(a, Value)]
        shape = broadcast_shapes(*[v.aval.shape for v in values])
        computed = self._common_dtype(op, args)
        all_attrs = {**op.defaults, **attrs}
        if name == "cast":
            dtype: np.dtype = np.dtype(getattr(attrs["dtype"], "numpy", attrs["dtype"]))
            all_attrs["dtype"] = dtype
            computed = args[0].aval.dtype
        else:
            dtype = _BOOL if op.boolean else computed
        if dtype.kind == "c":
            raise NotFusableError(f"op {name!r} computes complex numbers, which are not fused.")
        if (op.float_only or op.promotion == "float") and computed.kind not in "fV":
            raise NotFusableError(f"op {name!r} of {computed} first becomes a float; cast it before.")
        return self._append(name, args, all_attrs, Aval(shape, dtype), text, computed)

    def _common_dtype(self, op: Op, args: tuple[Operand, ...]) -> np.dtype:
        """Return the dtype in which ``op`` computes; NotFusableError if operands would have to be cast."""
        name, operands = op.name, args[op.promoted_from :]
        strong = [a.aval.dtype for a in operands if isinstance(a, Value) and not a.weak]
        if not strong:
            numbers = [a for a in operands if a.__class__ in _NUMBERS or isinstance(a, Value)]
            if numbers:
                return np.dtype(np.float64)
            raise NotFusableError(f"op {name!r} has no array among its operands.")
        first = strong[0]
        if any(d != first for d in strong[1:]):
            if any(d.kind in "Vc" for d in strong):
                raise NotFusableError(f"op {name!r} mixes {strong}; cast them to one dtype first.")
            first = np.result_type(*strong)
        floats = [a for a in operands if a.__class__ is float or (isinstance(a, Value) and a.weak)]
        if floats and first.kind in "iub":
            raise NotFusableError(f"op {name!r} mixes {first} with a float; cast it first.")
        if first.kind == "b" and any(a.__class__ is int for a in operands):
            raise NotFusableError(f"op {name!r} mixes booleans with an integer; cast them first.")
        return first

    def _reduction(self, name: str, x: Value, attrs: Attrs) -> Value:
        shape = x.aval.shape
        if name == "sum_to":
            target = tuple(attrs["shape"])
            if target == shape:
                return x
            lead = len(shape) - len(target)
            axes = tuple(
                i for i in range(len(shape)) if i < lead or (target[i - lead] == 1 and shape[i] != 1)
            )
            total = self._reduction("sum", x, {"axes": axes, "keepdims": True})
            return self._movement("reshape", total, {"shape": target})
        axes = tuple(attrs["axes"])
        if not axes or 0 in [shape[a] for a in axes]:
            raise NotFusableError(f"{name} over axes {axes} of {list(shape)} reduces nothing.")
        if x.aval.dtype.kind == "c":
            raise NotFusableError(f"{name} of complex numbers is not fused.")
        logic = table[name].boolean
        if name == "mean" and x.aval.dtype.kind not in "fV":
            raise NotFusableError(f"mean of {x.aval.dtype} is not fused; cast it first.")
        if all(shape[a] == 1 for a in axes):  # nothing to add up
            x = self.apply(table["ne"], (x, 0), {}) if logic and x.aval.dtype.kind != "b" else x
            reduced = reduced_shape(shape, axes, bool(attrs.get("keepdims")))
            return self._movement("reshape", x, {"shape": reduced})
        out = Aval(reduced_shape(shape, axes, bool(attrs.get("keepdims"))), _BOOL if logic else x.aval.dtype)
        reduction = {"axes": axes, "keepdims": bool(attrs.get("keepdims"))}
        return self._append(name, (x,), reduction, out, "", x.aval.dtype)

    def _movement(self, name: str, x: Value, attrs: Attrs) -> Value:
        shape = tuple(attrs["shape"])
        own = x.aval.shape
        if name == "reshape" and -1 in shape:
            known = -math.prod(shape)
            shape = tuple(x.aval.size // known if s == -1 else s for s in shape)
        if shape == own:
            return x
        if name == "reshape" and [s for s in own if s != 1] != [s for s in shape if s != 1]:
            raise NotFusableError(f"reshape from {list(own)} to {list(shape)} moves elements between axes.")
        if name == "expand" and broadcast_shapes(own, shape) != shape:
            raise NotFusableError(f"expand from {list(own)} to {list(shape)} does not broadcast.")
        return self._append(name, (x,), {"shape": shape}, Aval(shape, x.aval.dtype), "", x.aval.dtype)

    def _append(
        self,
        name: str,
        args: tuple[Operand, ...],
        attrs: Attrs,
        aval: Aval,
        text: str,
        computed: np.dtype,
    ) -> Value:
        refs: list[StepArgument] = []
        for a in args:
            if isinstance(a, Value):
                refs.append(a.ref)
            elif a is None or a.__class__ in _NUMBERS:
                refs.append(a)
            else:
                raise NotFusableError(f"op {name!r} takes {type(a).__name__} {a!r}, not an array.")
        reduces = not text and table[name].joined_by != ""
        step = Step(name, tuple(refs), tuple(sorted(attrs.items())), aval, text, computed, reduces)
        self.steps.append(step)
        return Value(self, Ref(len(self.inputs) + len(self.steps) - 1), aval)


class Value:
    """A value of a cluster that is being built: rules and decompositions compute with it like an array."""

    __slots__ = ("aval", "builder", "ref", "weak")
    __array_ufunc__ = None

    def __init__(self, builder: Builder, ref: Ref, aval: Aval, weak: bool = False) -> None:
        self.builder, self.ref, self.aval, self.weak = builder, ref, aval, weak

    @property
    def shape(self) -> Shape:
        """The shape, as of an array."""
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype:
        """The dtype, as of an array."""
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        """The number of axes, as of an array."""
        return len(self.aval.shape)

    @property
    def size(self) -> int:
        """The number of elements, as of an array."""
        return self.aval.size

    def __bool__(self) -> bool:
        raise NotFusableError("a branch depends on an array's values, which a cluster does not have.")

    def __add__(self, other: Value | float) -> Operand:
        return self.builder.apply(table["add"], (self, other), {})

    def __radd__(self, other: Value | float) -> Operand:
        return self.builder.apply(table["add"], (other, self), {})

    def __sub__(self, other: Value | float) -> Operand:
        return self.builder.apply(table["sub"], (self, other), {})

    def __rsub__(self, other: Value | float) -> Operand:
        return self.builder.apply(table["sub"], (other, self), {})

    def __mul__(self, other: Value | float) -> Operand:
        return self.builder.apply(table["mul"], (self, other), {})

    def __rmul__(self, other: Value | float) -> Operand:
        return self.builder.apply(table["mul"], (other, self), {})

    def __truediv__(self, other: Value | float) -> Operand:
        return self.builder.apply(table["div"], (self, other), {})

    def __rtruediv__(self, other: Value | float) -> Operand:
        return self.builder.apply(table["div"], (other, self), {})

    def __neg__(self) -> Operand:
        return self.builder.apply(table["neg"], (self,), {})

    def __repr__(self) -> str:
        return f"<%{self.ref.index} {self.aval!r}>"


class Namespace:
    """The namespace ``f`` for decompositions and rules whose ops are appended to a builder's cluster."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder

    def __getattr__(self, name: str) -> Callable[..., Operand]:
        if name.startswith("__"):
            raise AttributeError(name)
        op = table[name]
        return lambda *args, **attrs: self._builder.apply(op, args, attrs)


def without_dead_steps(cluster: Cluster) -> Cluster:
    """Return ``cluster`` without the steps that no output needs; it keeps all inputs."""
    n = len(cluster.inputs)
    needed = {r.index for r in cluster.outputs}
    for index in range(n + len(cluster.steps) - 1, n - 1, -1):
        if index in needed:
            needed.update(r.index for r in cluster.steps[index - n].refs)
    if all(i in needed for i in range(n, n + len(cluster.steps))):
        return cluster
    new_index: dict[int, int] = {i: i for i in range(n)}
    steps: list[Step] = []
    for index, step in enumerate(cluster.steps, n):
        if index in needed:
            new_index[index] = n + len(steps)
            args = tuple(Ref(new_index[a.index]) if isinstance(a, Ref) else a for a in step.args)
            steps.append(
                Step(step.op, args, step.attrs, step.aval, step.expression, step.computed, step.reduces)
            )
    outputs = tuple(Ref(new_index[r.index]) for r in cluster.outputs)
    return Cluster(cluster.inputs, tuple(steps), outputs, cluster.numbers)
