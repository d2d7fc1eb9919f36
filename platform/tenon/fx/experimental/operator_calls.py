"""Ops as calls of PyTorch's operators: ``aten.sum.dim_IntList(x, [1])`` for a reduction over axis 1.

Where PyTorch has an equivalent operator, the call's target is that operator, with its arguments. Other calls
have the op itself as target, ``tenon.ops.conv``, with the op's arguments; such a target equals PyTorch's
operator all the same (``OpTarget``).
"""

from __future__ import annotations

from typing import Any

from tenon import ops
from tenon.compat.overriding import arguments_of, handle, overloaded
from tenon.engine.op import Op
from tenon.engine.types import Attr, Attrs, Operand
from tenon.engine.value import Value
from tenon.ops.aten import Operator, operator_of
from tenon.ops.aten_calls import Call, converted
from tenon.tensors.tensor import Tensor


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
    call = converted(op.name, args, attrs) if args and isinstance(args[0], Tensor) else None
    if call is not None:
        return call
    name = operator_of(op, args, attrs).name
    plain = not attrs and op.name == name and isinstance(args[0] if args else None, Tensor)
    if plain and None not in args and hasattr(Tensor, name) and name not in ("copy", "where"):
        return Operator(name, "default" if len(args) == 1 else "Tensor"), args, {}
    return OpTarget(op.name, name), args, dict(attrs)
