"""Ops as calls of PyTorch's operators: ``aten.sum.dim_IntList(x, [1])`` for a reduction over axis 1.

Where an operator of PyTorch takes the same, a call names it, with its arguments. Other calls name the op
itself, ``tenon.ops.conv``, with its own; such a target equals PyTorch's operator all the same
(``OpTarget``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tenon import ops
from tenon.compat.overriding import arguments_of, handle, overloaded
from tenon.dtypes import from_numpy_dtype
from tenon.engine.op import Op
from tenon.engine.types import Attr, Attrs, Operand
from tenon.engine.value import Value
from tenon.ops.aten import Operator, operator_of
from tenon.tensors.tensor import Tensor

#: A target, its positional arguments and its keyword arguments.
Call: TypeAlias = tuple[Operator, tuple[Any, ...], dict[str, Any]]  # of any type


class OpTarget(Operator):
    """An op as the target of a node: called with the op's own arguments, equal to PyTorch's operator."""

    __slots__ = ("op_name",)

    def __init__(self, op_name: str, name: str) -> None:
        super().__init__(name)
        self.op_name = op_name

    @property
    def __name__(self) -> str:
        return self.op_name

    def __call__(self, *args: Operand, **options: Attr) -> Operand:
        """Compute the op."""
        others = [v for v in overloaded(arguments_of(args, options)) if not isinstance(v, Value)]
        if others:  # a Proxy of a program that is traced
            return handle(self, others, args, options)
        return getattr(ops, self.op_name)(*args, **options)

    def __repr__(self) -> str:
        return self.op_name

    def __reduce__(self) -> tuple[object, ...]:
        return OpTarget, (self.op_name, self.name)


def call_of(op: Op, args: tuple[Any, ...], attrs: Attrs) -> Call:  # tensors and numbers
    """Return ``op(*args, **attrs)`` as the call of an operator."""
    row = _ROWS.get(op.name)
    if row is not None and isinstance(args[0], Tensor):
        found = row(args, attrs)
        if found is not None:
            return found
    name = operator_of(op, args, attrs).name
    plain = not attrs and op.name == name and isinstance(args[0] if args else None, Tensor)
    if plain and None not in args and hasattr(Tensor, name) and name not in ("copy", "where"):
        return Operator(name, "default" if len(args) == 1 else "Tensor"), args, {}
    return OpTarget(op.name, name), args, dict(attrs)


def _reduction(name: str) -> Callable[[tuple[Any, ...], Attrs], Call | None]:  # tensors and numbers
    def row(args: tuple[Any, ...], attrs: Attrs) -> Call | None:  # tensors and numbers
        (x,) = args
        axes, keep = attrs["axes"], attrs.get("keepdims", False)
        if not axes:  # PyTorch takes no axes for all of them
            return None
        if len(axes) == x.ndim and not keep:
            return Operator(name, "default"), (x,), {}
        overload = "dim_IntList" if name == "sum" else "dim"
        return Operator(name, overload), (x, list(axes), *([True] if keep else [])), {}

    return row


# of any type
def _axis(name: str, overload: str, *keys: str) -> Callable[[tuple[Any, ...], Attrs], Call]:
    """Return the row of an operator that takes attributes by position after the tensor."""

    def row(args: tuple[Any, ...], attrs: Attrs) -> Call:  # tensors and numbers
        values = (attrs[key] for key in keys)
        return (
            Operator(name, overload),
            (*args, *(list(v) if isinstance(v, tuple) else v for v in values)),
            {},
        )

    return row


def _cat(args: tuple[Any, ...], attrs: Attrs) -> Call:  # tensors
    return Operator("cat", "default"), (list(args), *([attrs["axis"]] if attrs["axis"] else [])), {}


def _reshape(args: tuple[Any, ...], attrs: Attrs) -> Call:  # a tensor
    name = "view" if args[0].is_contiguous() else "reshape"
    return Operator(name, "default"), (args[0], list(attrs["shape"])), {}


def _cast(args: tuple[Any, ...], attrs: Attrs) -> Call | None:  # a tensor
    return Operator("to", "dtype"), (args[0], from_numpy_dtype(attrs["dtype"])), {}


def _square(args: tuple[Any, ...], attrs: Attrs) -> Call:  # a tensor
    return Operator("pow", "Tensor_Scalar"), (args[0], 2), {}


def _matmul(args: tuple[Any, ...], attrs: Attrs) -> Call | None:  # two tensors
    name = {(1, 1): "dot", (2, 1): "mv", (2, 2): "mm"}.get(tuple(x.ndim for x in args))
    return None if name is None else (Operator(name, "default"), args, {})


#: Name of an op -> its row.
_ROWS: dict[str, Callable[[tuple[Any, ...], Attrs], Call | None]] = {  # tensors and numbers
    "sum": _reduction("sum"),
    "matmul": _matmul,
    "mean": _reduction("mean"),
    "cat": _cat,
    "view": _reshape,
    "reshape": _reshape,
    "squeeze": _reshape,
    "cast": _cast,
    "square": _square,
    "transpose": _axis("transpose", "int", "axis0", "axis1"),
    "permute": _axis("permute", "default", "axes"),
    "expand": _axis("expand", "default", "shape"),
    "split": _axis("split", "sizes", "sizes", "axis"),
    "softmax": _axis("softmax", "int", "axis"),
    "log_softmax": _axis("log_softmax", "int", "axis"),
}
