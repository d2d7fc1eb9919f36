"""``Cluster``: a few ops that run as one kernel, described without reference to any backend.

Nodes are elementwise ops (those with an ``expression``), reductions, and ``reshape`` and
``expand`` that only add, drop or repeat axes of size 1, in an order in which they can run. Shapes and dtypes
are static; a *number* input is a Python float that may differ from call to call (a learning rate).

``Builder`` makes one: ``builder.apply(op, args, attrs)`` appends an op, or the parts of a composite.
``Compiler.fuse(cluster)`` turns one into a kernel called as ``kernel(*inputs, *outputs)``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tenon.engine.aval import Aval, Shape, broadcast_shapes, reduced_shape
from tenon.engine.op import Composite, Op, table
from tenon.errors import NotFusableError
from tenon.ops.movement import Expand, Reshape

#: Ops that a cluster may hold as far as they only add, drop or repeat axes of size 1.
MOVES = (Reshape, Expand)
_BOOL = np.dtype(np.bool_)
_NUMBERS = (bool, int, float)
_FLOAT64 = np.dtype(np.float64)


class Ref(NamedTuple):
    """Value number ``index`` of a cluster: inputs first, then nodes."""

    index: int  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Step:
    """One op of a cluster. ``expression`` is "" for reductions and movements."""

    op: str
    args: tuple[Any, ...]
    attrs: tuple[tuple[str, Any], ...]
    aval: Aval
    expression: str = ""
    #: What the arithmetic is done in: the common dtype of the operands.
    computed: Any = None
    #: Whether it reduces over axes.
    reduces: bool = False

    @property
    def definition(self) -> Op:
        """The op, which says what it does to an element."""
        return table[self.op]

    @property
    def moves(self) -> bool:
        """Whether it only adds, drops or repeats axes of size 1."""
        return not self.expression and not self.reduces

    @property
    def refs(self) -> list[Ref]:
        """The values it reads."""
        return [a for a in self.args if a.__class__ is Ref]

    def attr(self, name: str) -> Any:
        """An attr's value, None where it is not given."""
        return dict(self.attrs).get(name)


@dataclass(frozen=True)
class Cluster:
    """Inputs, steps and outputs. ``numbers`` are indices of inputs that are Python floats."""

    inputs: tuple[Aval, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Ref, ...]
    numbers: frozenset[int] = frozenset()

    @functools.cached_property
    def key(self) -> int:
        """A hash of all of it."""
        return hash((self.inputs, self.steps, self.outputs, self.numbers))

    def __hash__(self) -> int:
        return self.key

    def aval(self, ref: Ref) -> Aval:
        """Shape and dtype of a value."""
        n = len(self.inputs)
        return self.inputs[ref.index] if ref.index < n else self.steps[ref.index - n].aval

    def step(self, ref: Ref) -> Step | None:
        """The step that makes a value; None for an input."""
        n = len(self.inputs)
        return None if ref.index < n else self.steps[ref.index - n]

    @property
    def reduces(self) -> bool:
        """Whether any step is a reduction."""
        return any(s.reduces for s in self.steps)

    def lines(self, names: Sequence[str]) -> list[str]:
        """A line for each step, and one for what comes out; ``names`` are those of inputs and steps."""
        n = len(self.inputs)
        lines = []
        for name, step in zip(names[n:], self.steps, strict=True):
            parts = [names[a.index] if a.__class__ is Ref else repr(a) for a in step.args]
            parts += [f"{k}={v!r}" for k, v in step.attrs]
            lines.append(f"{name}: {step.aval!r} = {step.op}({', '.join(parts)})")
        return [*lines, "return " + ", ".join(names[r.index] for r in self.outputs)]

    def __str__(self) -> str:
        names = [f"%{i}" for i in range(len(self.inputs) + len(self.steps))]
        given = [
            f"{names[i]}: {'number' if i in self.numbers else repr(a)}" for i, a in enumerate(self.inputs)
        ]
        return "\n".join(given + self.lines(names))


class Builder:
    """Collects the steps of a cluster."""

    def __init__(self) -> None:
        self.inputs: list[Aval] = []
        self.numbers: set[int] = set()
        self.steps: list[Step] = []
        self._closed = False

    def input(self, shape: Shape, dtype: Any) -> Value:
        """An array input; all inputs come before the first op."""
        return self._input(Aval(tuple(shape), np.dtype(dtype)))

    def number(self) -> Value:
        """A Python float given with every call."""
        self.numbers.add(len(self.inputs))
        return self._input(Aval((), _FLOAT64))

    def _input(self, aval: Aval) -> Value:
        if self.steps:
            raise NotFusableError("a cluster's inputs come before its ops; declare them first.")
        self.inputs.append(aval)
        return Value(self, Ref(len(self.inputs) - 1), aval, weak=len(self.inputs) - 1 in self.numbers)

    def build(self, outputs: Sequence[Value]) -> Cluster:
        """The cluster that returns ``outputs``."""
        found = Cluster(
            tuple(self.inputs), tuple(self.steps), tuple(o.ref for o in outputs), frozenset(self.numbers)
        )
        return without_dead(found)

    def apply(self, op: Op, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """Append ``op``; returns its value, or a tuple of them. NotFusableError where it does not fit."""
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
        raise NotFusableError(f"op {name!r} has no expression and no parts, so it runs as its own kernel.")

    def _parts(self, op: Composite, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        f = Namespace(self)
        made = op.raw_forward(f, *args, **attrs) if op.residuals else op.decompose(f, *args, **attrs)
        return tuple(self._value(m) for m in made) if isinstance(made, tuple) else self._value(made)

    def _value(self, made: Any) -> Any:
        if isinstance(made, Value):
            return made
        raise NotFusableError(f"a part of a cluster is {made!r}, not an array; leave it outside.")

    def _elementwise(self, op: Op, text: str, args: tuple[Any, ...], attrs: dict[str, Any]) -> Value:
        name = op.name
        values = [a for a in args if isinstance(a, Value)]
        shape = broadcast_shapes(*[v.aval.shape for v in values])
        computed = self._common(op, args)
        kept = {**op.defaults, **attrs}
        if name == "cast":
            dtype = kept["dtype"] = np.dtype(getattr(attrs["dtype"], "numpy", attrs["dtype"]))
            computed = args[0].aval.dtype
        else:
            dtype = _BOOL if op.boolean else computed
        if dtype.kind == "c":
            raise NotFusableError(f"op {name!r} computes complex numbers, which are not fused.")
        if (op.float_only or op.promotion == "float") and computed.kind not in "fV":
            raise NotFusableError(f"op {name!r} of {computed} first becomes a float; cast it before.")
        return self._append(name, args, kept, Aval(shape, dtype), text, computed)

    def _common(self, op: Op, args: tuple[Any, ...]) -> Any:
        name, given = op.name, args[op.promoted_from :]
        strong = [a.aval.dtype for a in given if isinstance(a, Value) and not a.weak]
        if not strong:
            numbers = [a for a in given if a.__class__ in _NUMBERS or isinstance(a, Value)]
            if numbers:
                return np.dtype(np.float64)
            raise NotFusableError(f"op {name!r} has no array among its operands.")
        first = strong[0]
        if any(d != first for d in strong[1:]):
            if any(d.kind in "Vc" for d in strong):
                raise NotFusableError(f"op {name!r} mixes {strong}; cast them to one dtype first.")
            first = np.result_type(*strong)
        floats = [a for a in given if a.__class__ is float or (isinstance(a, Value) and a.weak)]
        if floats and first.kind in "iub":
            raise NotFusableError(f"op {name!r} mixes {first} with a float; cast it first.")
        if first.kind == "b" and any(a.__class__ is int for a in given):
            raise NotFusableError(f"op {name!r} mixes booleans with an integer; cast them first.")
        return first

    def _reduction(self, name: str, x: Value, attrs: dict[str, Any]) -> Value:
        shape = x.aval.shape
        if name == "sum_to":
            target = tuple(attrs["shape"])
            if target == shape:
                return x
            lead = len(shape) - len(target)
            axes = tuple(
                i for i in range(len(shape)) if i < lead or (target[i - lead] == 1 and shape[i] != 1)
            )
            made = self._reduction("sum", x, {"axes": axes, "keepdims": True})
            return self._movement("reshape", made, {"shape": target})
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
            kept = reduced_shape(shape, axes, bool(attrs.get("keepdims")))
            return self._movement("reshape", x, {"shape": kept})
        out = Aval(reduced_shape(shape, axes, bool(attrs.get("keepdims"))), _BOOL if logic else x.aval.dtype)
        given = {"axes": axes, "keepdims": bool(attrs.get("keepdims"))}
        return self._append(name, (x,), given, out, "", x.aval.dtype)

    def _movement(self, name: str, x: Value, attrs: dict[str, Any]) -> Value:
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
        self, name: str, args: tuple[Any, ...], attrs: dict[str, Any], aval: Aval, text: str, computed: Any
    ) -> Value:
        refs: list[Any] = []
        for a in args:
            if isinstance(a, Value):
                refs.append(a.ref)
            elif a is None or a.__class__ in _NUMBERS:
                refs.append(a)
            else:
                raise NotFusableError(f"op {name!r} takes {type(a).__name__} {a!r}, which is no array here.")
        reduces = not text and table[name].joined_by != ""
        step = Step(name, tuple(refs), tuple(sorted(attrs.items())), aval, text, computed, reduces)
        self.steps.append(step)
        return Value(self, Ref(len(self.inputs) + len(self.steps) - 1), aval)


class Value:
    """A value of a cluster in the making: what rules and decompositions see in place of an array."""

    __slots__ = ("aval", "builder", "ref", "weak")
    __array_ufunc__ = None

    def __init__(self, builder: Builder, ref: Ref, aval: Aval, weak: bool = False) -> None:
        self.builder, self.ref, self.aval, self.weak = builder, ref, aval, weak

    @property
    def shape(self) -> Shape:
        """As an array's."""
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """As an array's."""
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        """As an array's."""
        return len(self.aval.shape)

    @property
    def size(self) -> int:
        """As an array's."""
        return self.aval.size

    def __bool__(self) -> bool:
        raise NotFusableError("the path taken depends on an array's values, which a cluster does not know.")

    def __add__(self, other: Any) -> Any:
        return self.builder.apply(table["add"], (self, other), {})

    def __radd__(self, other: Any) -> Any:
        return self.builder.apply(table["add"], (other, self), {})

    def __sub__(self, other: Any) -> Any:
        return self.builder.apply(table["sub"], (self, other), {})

    def __rsub__(self, other: Any) -> Any:
        return self.builder.apply(table["sub"], (other, self), {})

    def __mul__(self, other: Any) -> Any:
        return self.builder.apply(table["mul"], (self, other), {})

    def __rmul__(self, other: Any) -> Any:
        return self.builder.apply(table["mul"], (other, self), {})

    def __truediv__(self, other: Any) -> Any:
        return self.builder.apply(table["div"], (self, other), {})

    def __rtruediv__(self, other: Any) -> Any:
        return self.builder.apply(table["div"], (other, self), {})

    def __neg__(self) -> Any:
        return self.builder.apply(table["neg"], (self,), {})

    def __repr__(self) -> str:
        return f"<%{self.ref.index} {self.aval!r}>"


class Namespace:
    """``f`` for decompositions and rules: every op appends to the builder's cluster."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        op = table[name]
        return lambda *args, **attrs: self._builder.apply(op, args, attrs)


def without_dead(cluster: Cluster) -> Cluster:
    """``cluster`` without the steps that no output needs; its inputs stay."""
    n = len(cluster.inputs)
    needed = {r.index for r in cluster.outputs}
    for index in range(n + len(cluster.steps) - 1, n - 1, -1):
        if index in needed:
            needed.update(r.index for r in cluster.steps[index - n].refs)
    if all(i in needed for i in range(n, n + len(cluster.steps))):
        return cluster
    places: dict[int, int] = {i: i for i in range(n)}
    steps: list[Step] = []
    for index, step in enumerate(cluster.steps, n):
        if index in needed:
            places[index] = n + len(steps)
            args = tuple(Ref(places[a.index]) if a.__class__ is Ref else a for a in step.args)
            steps.append(
                Step(step.op, args, step.attrs, step.aval, step.expression, step.computed, step.reduces)
            )
    outputs = tuple(Ref(places[r.index]) for r in cluster.outputs)
    return Cluster(cluster.inputs, tuple(steps), outputs, cluster.numbers)
