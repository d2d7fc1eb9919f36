"""Write calls of ops as NumPy calls that store into planned arrays, for ops without a prepared kernel.

``lines(step)`` returns the Python statements of a call, or None if it needs the backend's kernel and a copy
of the result. An output may overwrite an operand, so no statement reads an operand after an output was
written, unless the memory plan places both in different memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tenon.engine.op import Primitive, table
from tenon.engine.types import Array, Operand
from tenon.graph.graph import Node
from tenon.ops.movement import Reshape

_WIDE = frozenset("fdFDlqiLQI?bBhH")
_FLOATS = frozenset("fd")
#: Number of multiplications from which the backend's multithreaded kernel is faster in spite of a copy.
_LARGE_PRODUCT = 1 << 21


class Step:
    """One call to be written as Python: its node, its arrays and their names in the source."""

    def __init__(
        self, node: Node, ins: list[Operand], outs: list[np.ndarray], names: list[str], made: list[str]
    ) -> None:
        #: The arguments are arrays, Python numbers, None, or nodes of scalars.
        self.node, self.ins, self.outs = node, ins, outs
        #: The text of each argument, and the name of each output.
        self.names, self.made = names, made
        #: Global variables that the statements use.
        self.space: dict[str, Any] = {}

    def bind(self, value: object, hint: str) -> str:
        """Make ``value`` a global variable of the program; return its name, which begins with ``hint``."""
        name = f"{hint}_{self.made[0] if self.made else f'x{id(self.node)}'}_{len(self.space)}"
        self.space[name] = value
        return name

    def function(self, name: str) -> str:
        """Make NumPy's function of that (dotted) name available; return the name."""
        head = name.partition(".")[0]
        self.space[head] = getattr(np, head)
        return name


#: Returns the statements of a call; None to leave it to the backend's kernel.
Form: TypeAlias = Callable[[Step], "list[str] | None"]


def lines(step: Step) -> list[str] | None:
    """Return the statements of one call; None to leave it to the backend's kernel."""
    op = step.node.op
    arrays = [a for a in (*step.ins, *step.outs) if isinstance(a, np.ndarray)]
    form = _copy if isinstance(op, Reshape) else FORMS.get(op.name)
    if form not in _MOVES and any(a.dtype.char not in _WIDE for a in arrays):
        return None  # 16-bit floats: their kernels round in the right places
    if form is not None:
        return form(step)
    if op.joined_by and not op.boolean:
        return _reduce(step)
    if op.is_ufunc and isinstance(op, Primitive) and op.ufunc is not None and hasattr(np, op.ufunc):
        return [f"{step.function(op.ufunc)}({', '.join(_operands(step))}, out={step.made[0]})"]
    if isinstance(op, Primitive) and op.fills_out:
        call = step.bind(op.forward, op.name)
        step.space["numpy"] = np
        attrs = "".join(f", {k}={step.bind(v, k)}" for k, v in step.node.attrs.items())
        return [f"{call}(numpy, {', '.join(_operands(step))}{attrs}, out={step.made[0]})"]
    return None


def _operands(step: Step) -> list[str]:
    """Return the names of the operands; with a float array, a number becomes a 0-d array."""
    kinds = {a.dtype for a in step.ins if isinstance(a, np.ndarray)}
    only = next(iter(kinds)) if len(kinds) == 1 else None
    names = []
    for value, name in zip(step.ins, step.names, strict=True):
        if value.__class__ in (int, float) and only is not None and only.char in _FLOATS:
            name = step.bind(np.array(value, only), "number")
        names.append(name)
    return names


def _reduce(step: Step) -> list[str]:
    axes, keep = step.node.attrs["axes"], step.node.attrs.get("keepdims", False)
    joined = table[step.node.op.joined_by]
    assert isinstance(joined, Primitive) and joined.ufunc is not None
    function = step.function(joined.ufunc)
    return [f"{function}.reduce({step.names[0]}, {axes!r}, None, {step.made[0]}, {keep!r})"]


def _mean(step: Step) -> list[str] | None:
    x, axes = step.ins[0], step.node.attrs["axes"]
    count = math.prod([x.shape[a] for a in axes])
    if not count or x.dtype.char not in _FLOATS:
        return None
    keep, out = step.node.attrs.get("keepdims", False), step.made[0]
    divisor = step.bind(np.array(count, x.dtype), "count")
    return [
        f"{step.function('add')}.reduce({step.names[0]}, {axes!r}, None, {out}, {keep!r})",
        f"{step.function('true_divide')}({out}, {divisor}, out={out})",
    ]


def _sum_to(step: Step) -> list[str]:
    own, shape = step.ins[0].shape, step.outs[0].shape
    lead = len(own) - len(shape)
    axes = tuple(range(lead)) + tuple(i + lead for i, s in enumerate(shape) if s == 1 and own[i + lead] != 1)
    wide = [1 if a in axes else s for a, s in enumerate(own)]
    out = step.bind(step.outs[0].reshape(wide, copy=False), "reshaped")
    return [f"{step.function('add')}.reduce({step.names[0]}, {axes!r}, None, {out}, True)"]


def _matmul(step: Step) -> list[str] | None:
    x, y = step.ins
    if not isinstance(x, np.ndarray) or x.size * y.shape[-1] >= _LARGE_PRODUCT or x.dtype.char not in _WIDE:
        return None
    return [f"{step.function('matmul')}({step.names[0]}, {step.names[1]}, out={step.made[0]})"]


def _copy(step: Step) -> list[str]:
    """Copy the source into the output, viewed in the source's shape: a view op that NumPy can only copy."""
    source, out = step.ins[0], step.outs[0]
    target = step.made[0]
    if source.shape != out.shape:
        target = step.bind(out.reshape(source.shape, copy=False), "view")
    return [f"{step.function('copyto')}({target}, {step.names[0]})"]


def _cast(step: Step) -> list[str]:
    source, name = step.ins[0], step.names[0]
    if source.dtype.kind == "c" and step.outs[0].dtype.kind not in "cb":
        name = step.bind(source.real, "real")
    return [f"{step.function('copyto')}({step.made[0]}, {name}, casting='unsafe')"]


def _fill(step: Step) -> list[str]:
    return [f"{step.made[0]}.fill({step.node.attrs.get('value', 0)!r})"]


def _put_view(step: Step) -> list[str] | None:
    x, out = step.ins[0], step.outs[0]
    region: Array = out
    for name, attrs in step.node.attrs["steps"]:
        op = table[name]
        assert isinstance(op, Primitive)
        region = op.forward(np, region, **dict(attrs))
    if not np.may_share_memory(region, out):
        return None
    copy, place = step.function("copyto"), step.bind(region, "region")
    copied = [] if same_array(x, out) else [f"{copy}({step.made[0]}, {step.names[0]})"]
    return [*copied, f"{copy}({place}, {step.names[1]}, casting='unsafe')"]


def same_array(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays have the same memory, shape and strides."""
    return bool(
        a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
        and a.shape == b.shape
        and a.strides == b.strides
    )


def _concatenate(step: Step) -> list[str]:
    axis = step.node.attrs["axis"]
    return [f"{step.function('concatenate')}(({', '.join(step.names)},), axis={axis}, out={step.made[0]})"]


def _relu(step: Step) -> list[str]:
    zero = step.bind(np.zeros((), step.outs[0].dtype), "zero")
    return [f"{step.function('maximum')}({step.names[0]}, {zero}, out={step.made[0]})"]


#: Statements of powers to some numbers, which are products and roots, as in eager mode.
_POWERS = {
    2: ("{square}({x}, out={out})",),
    3: ("{multiply}({multiply}({x}, {x}), {x}, out={out})",),
    -1: ("{reciprocal}({x}, out={out})",),
    0.5: ("{sqrt}({x}, out={out})",),
    -0.5: ("{sqrt}({x}, out={out})", "{reciprocal}({out}, out={out})"),
}
_OF_POWERS = ("square", "multiply", "reciprocal", "sqrt")


def _pow(step: Step) -> list[str]:
    """A power to one of these numbers, or NumPy's ``power``."""
    x, exponent = step.ins
    if isinstance(x, np.ndarray) and x.dtype.char in _FLOATS and exponent.__class__ in (int, float):
        functions = {name: step.function(name) for name in _OF_POWERS}
        if exponent in _POWERS:
            return [form.format(x=step.names[0], out=step.made[0], **functions) for form in _POWERS[exponent]]
    return [f"{step.function('power')}({', '.join(_operands(step))}, out={step.made[0]})"]


FORMS: dict[str, Form] = {
    "pow": _pow,
    "mean": _mean,
    "sum_to": _sum_to,
    "matmul": _matmul,
    "contiguous": _copy,
    "clone": _copy,
    "cast": _cast,
    "new_full": _fill,
    "zeros_like": _fill,
    "put_view": _put_view,
    "cat": _concatenate,
    "relu": _relu,
}
#: Forms that only copy, and so work for every dtype.
_MOVES = frozenset((_copy, _fill, _put_view, _concatenate))
