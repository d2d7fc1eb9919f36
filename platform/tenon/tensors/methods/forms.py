"""The methods that are one op each, in all their forms: ``exp``, ``exp_``, ``greater``, ``__iadd__``'s kin.

Attached to ``Arithmetic`` by name, so that a new elementwise op needs one word here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.engine.interceptor import SLOT
from tenon.engine.late import LATE
from tenon.engine.op import Primitive
from tenon.engine.op import table as f
from tenon.engine.value import Value
from tenon.tensors.methods.arithmetic import Arithmetic, need_order
from tenon.tensors.transcendental import PREDICATES, TRANSCENDENTAL

_NONE: dict[str, Any] = {}

UNARY = [
    *(name for name in TRANSCENDENTAL if name != "erfc"), *PREDICATES,
    "abs", "rsqrt", "square", "reciprocal", "floor", "ceil", "trunc", "sign", "relu", "logical_not",
    "bitwise_not",
]  # fmt: skip
BINARY = [
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "atan2",
    "hypot",
    "remainder",
    "fmod",
    "floor_divide",
    "logaddexp",
]
ALIASES = {
    "absolute": "abs", "negative": "neg", "multiply": "mul", "divide": "div", "true_divide": "div",
    "subtract": "sub",
    "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne",
    "clip": "clamp",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh", "sgn": "sign", "fix": "trunc",
}  # fmt: skip
#: Methods that have an in-place form ``name_``.
INPLACE = [
    *(name for name in UNARY if name not in (*PREDICATES, "abs")), *BINARY, "add", "sub", "mul", "div", "pow",
    "neg", "clamp", "round", "lerp", "addcmul", "addcdiv", "nan_to_num",
]  # fmt: skip


def _unary(name: str) -> Callable[[Any], Any]:
    by_name = f.by_name

    def method(self: Any) -> Any:
        op = by_name[name]
        if SLOT.top is None and isinstance(op, Primitive):
            return SLOT.single(op, self, _NONE)
        return op(self)

    return method


def _binary(name: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        return getattr(f, name)(self, other)

    def of_tensors(self: Any, other: Any) -> Any:
        need_tensor(name, "other", other)
        if name in _ORDERED:
            need_order(name, self, other)
        return getattr(f, name)(self, other)

    def ordering(self: Any, other: Any) -> Any:
        need_order(name, self, other)
        return getattr(f, name)(self, other)

    return of_tensors if name in _OF_TENSORS else ordering if name in _ORDERED else method


def need_tensor(function: str, argument: str, value: Any) -> Any:
    """``value`` if it is a tensor; torch takes no numbers in the second place of some functions."""
    if not isinstance(value, Value):
        raise TypeError(
            f"{function}(): argument '{argument}' (position 2) must be Tensor, not {type(value).__name__}"
        )
    return value


def inplace_form(name: str) -> Callable[..., Any]:
    """``name_``: the method ``name`` written into ``self``."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not kwargs and (op := f.by_name.get(name)) is not None:
            if name not in _NOT_THE_OP:
                return LATE.inplace(op, self, *args)
            missing = len(op.inputs) - 1 - len(args)
            if name in _OF_REALS and (args or not missing) and missing >= 0 and _all_real(self, *args):
                return LATE.inplace(op, self, *args, *(None,) * missing)
        return LATE.inplace(getattr(type(self), name), self, *args, **kwargs)

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"In-place form of ``{name}``."
    return method


def _all_real(*values: Any) -> bool:
    """Tensors of floats, and numbers that are no booleans."""
    return all(
        v.raw.dtype.kind == "f" if isinstance(v, Value) else v.__class__ in (int, float) for v in values
    )


def through_method(name: str) -> Callable[..., Any]:
    """``name_`` for a method whose arguments are not those of an op of its name."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        from tenon.tensors.inplace import inplace

        return inplace(getattr(type(self), name), self, *args, **kwargs)

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"In-place form of ``{name}``."
    return method


#: Binary functions whose second argument is a tensor and never a number.
_OF_TENSORS = frozenset((
    "atan2", "fmax", "fmin", "hypot", "logaddexp", "logical_and", "logical_or", "logical_xor", "maximum",
    "minimum",
))  # fmt: skip
#: Binary functions that compare numbers.
_ORDERED = frozenset(("fmax", "fmin", "ge", "gt", "le", "lt", "maximum", "minimum"))
_NOT_THE_OP = _OF_TENSORS | _ORDERED | {
    "clamp", "gcd", "heaviside", "i0", "igamma", "igammac", "lcm", "ldexp", "nan_to_num", "neg", "nextafter",
    "polygamma", "pow", "put", "sub", "xlogy",
}  # fmt: skip
#: Those that are the op after all where everything is a real number.
_OF_REALS = frozenset(("clamp", "neg", "sub"))


def _attach() -> None:
    for name in UNARY:
        method: Any = _unary(name)
        method.__name__, method.__doc__ = name, f"Elementwise ``{name}``; see ``tenon.ops.{name}``."
        setattr(Arithmetic, name, method)
    for name in BINARY:
        method = _binary(name)
        method.__name__, method.__doc__ = (
            name,
            f"Elementwise ``{name}`` with ``other``; see ``tenon.ops.{name}``.",
        )
        setattr(Arithmetic, name, method)
    for name in INPLACE:
        setattr(Arithmetic, f"{name}_", inplace_form(name))
    for alias, name in ALIASES.items():
        setattr(Arithmetic, alias, getattr(Arithmetic, name))
        if hasattr(Arithmetic, f"{name}_"):
            setattr(Arithmetic, f"{alias}_", getattr(Arithmetic, f"{name}_"))


_attach()
