"""PyTorch's operator names, ``ops.aten.mm.default``, by which policies and handlers identify ops.

``operator_of`` returns the operator that PyTorch would run for a call of an op here: ``addmm`` for a
``linear`` with a bias. Overloads of one name compare equal, and underscores are ignored but for
the one at the end of an in-place operator: ``aten._softmax.default == aten.softmax.int``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

from tenon.compat.overriding import arguments_of, handle, overloaded
from tenon.engine.op import Op, table
from tenon.engine.types import Attr, Attrs, Operand
from tenon.engine.value import Value
from tenon.errors import IndexRangeError, UnsupportedError

#: Ranks of the operands (2 for 2 and more) -> the product that PyTorch runs.
_PRODUCTS = {(1, 1): "dot", (2, 1): "mv", (1, 2): "mm", (2, 2): "mm"}
#: Operators whose method takes its arguments in another order than the operator.
_NO_METHODS = frozenset(["where"])


class Operator:
    """An operator under PyTorch's name, equal to its ``.default``, ``.Tensor`` and any other overload."""

    __slots__ = ("key", "name", "overload")

    def __init__(self, name: str, overload: str = "") -> None:
        self.name = name
        #: The overload's name; "" for the operator itself.
        self.overload = overload
        in_place = name.endswith("_") and not name.endswith("__")
        self.key = name.replace("_", "").lower() + "_" * in_place

    @property
    def __name__(self) -> str:
        return f"{self.name}.{self.overload}" if self.overload else self.name

    @property
    def overloadpacket(self) -> Operator:
        """The operator without its overload."""
        return Operator(self.name)

    def __getattr__(self, overload: str) -> Operator:
        if overload.startswith("_"):
            raise AttributeError(f"{self!r} has no overload {overload!r}")
        return Operator(self.name, overload)

    def __call__(self, *args: Operand, **options: Attr) -> Operand:
        """Call the method of the first argument with the operator's name, else the function or op of that
        name."""
        others = [v for v in overloaded(arguments_of(args, options)) if not isinstance(v, Value)]
        if others:  # a Proxy of a program that is traced
            return handle(self, others, args, options)
        if not args and "input" in options:  # as normalize_function names it
            args = (options.pop("input"),)
        if self.name == "index":
            keys = tuple(slice(None) if k is None else k for k in args[1])
            if not keys:
                raise IndexRangeError("at least one index must be provided (got an empty list of indices)")
            return args[0][keys]
        method = bool(args) and "out" not in options  # which methods do not take
        return self._function(type(args[0]) if method else object)(*args, **options)

    def _function(self, kind: type) -> Callable[..., Operand]:
        """Return what computes the operator for a first argument of type ``kind``."""
        public = sys.modules["tenon"]
        namespaces = [public, public.nn.functional]
        if self.name not in _NO_METHODS:
            namespaces.insert(0, kind)
        for namespace in namespaces:
            function: Callable[..., Operand] | None = getattr(namespace, self.name, None)
            if function is not None:
                return function
        if self.name not in table.by_name:
            raise UnsupportedError(f"{self!r} names an operator that is neither a method nor a function.")
        return table.by_name[self.name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operator) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"aten.{self.name}.{self.overload}" if self.overload else f"aten.{self.name}"

    def __reduce__(self) -> tuple[object, ...]:
        # By default, unpickling looks up methods before ``name`` exists, which __getattr__ needs.
        return Operator, (self.name, self.overload)


def operator_of(op: Op, args: tuple[Operand, ...], attrs: Attrs) -> Operator:
    """Return the operator that PyTorch would run for ``op(*args, **attrs)``."""
    if op.name == "linear":
        return Operator("mm" if len(args) < 3 or args[2] is None else "addmm")
    if op.name == "matmul":
        x, y = (a.raw.ndim for a in args)
        if y > 2:  # PyTorch folds the axes of a batch that is multiplied with one matrix or vector
            return Operator("bmm" if x > 2 else _PRODUCTS[2, x])
        return Operator(_PRODUCTS[min(x, 2), y])
    title = re.sub(r"Backwards?\d*$", "", op.torch_name(args, attrs))
    return Operator(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", title).lower())


def __getattr__(name: str) -> Operator:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return Operator(name)
