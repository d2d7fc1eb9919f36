"""Tensor's methods that are one op each, made from the op classes: ``exp``, ``exp_``, ``greater``.

``attach`` is called with every op that registers, so that a new op has its methods and functions at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.compat.rerouting import register
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Op, Primitive
from tenon.engine.value import Value
from tenon.tensors.inplace import inplace
from tenon.tensors.methods.arithmetic import Arithmetic, need_order
from tenon.tensors.methods.function_forms import FUNCTION_FORMS, FunctionForm
from tenon.tensors.methods.in_place import as_inplace_form, through_method
from tenon.tensors.methods.titles import titled

_NO_ATTRS: dict[str, Any] = {}
_NO_OUT = FunctionForm(out="none")


def attach(families: tuple[type, ...], op: Op) -> None:
    """Give Tensor the methods of ``op`` that ``families`` do not write by hand, and note its functions."""
    if not op.public:
        return
    result: dict[str, Any] = {}
    _add(result, families, op, "", _method)
    function = FunctionForm(op.first_argument, op.out, "same")
    FUNCTION_FORMS.update(dict.fromkeys((op.name, *op.aliases), function))
    if op.inplace_form:
        names = _add(result, families, op, "_", _inplace_method)
        listed = op.inplace_functions
        FUNCTION_FORMS.update(
            {n: _NO_OUT for n in names if (listed if isinstance(listed, bool) else n in listed)}
        )
    for name, method in result.items():
        setattr(Arithmetic, name, method)
    register("torch.Tensor", result)


def _add(
    result: dict[str, Any], families: tuple[type, ...], op: Op, suffix: str, make: Callable[[Op], Any]
) -> list[str]:
    """Add the method of ``op``, or its in-place form, to ``result`` under all its names; return the names."""
    method = _written(families, f"{op.name}{suffix}") or make(op)
    names = [f"{name}{suffix}" for name in (op.name, *op.aliases)]
    for name in names:
        if _written(families, name) is None:
            title = _title(op, name.removesuffix("_"), suffix)
            result[name] = titled(title)(method) if title else method
    return names


def _title(op: Op, name: str, suffix: str) -> str:
    """torch's name of the gradient of this method, where it is not that of the op."""
    if suffix and op.inplace_overload:
        return op.torch_name((), {}).replace("Backward0", "Backward1")
    return op.alias_grad_names.get(name, "")


def _written(families: tuple[type, ...], name: str) -> Any:
    return next((vars(family)[name] for family in families if name in vars(family)), None)


def _method(op: Op) -> Callable[..., Any]:
    method = _unary(op) if len(op.inputs) == 1 else _binary(op)
    method.__name__, method.__qualname__ = op.name, f"Tensor.{op.name}"
    method.__doc__ = op.__doc__
    return method


def _unary(op: Op) -> Callable[[Any], Any]:
    def primitive(self: Any) -> Any:
        return SLOT.single(op, self, _NO_ATTRS) if SLOT.top is None else op(self)

    def composite(self: Any) -> Any:
        return op(self)

    return primitive if isinstance(op, Primitive) else composite


def _binary(op: Op) -> Callable[[Any, Any], Any]:
    name, orders = op.name, op.orders

    def method(self: Any, other: Any) -> Any:
        return op(self, other)

    def of_tensors(self: Any, other: Any) -> Any:
        need_tensor(name, "other", other)
        if orders:
            need_order(name, self, other)
        return op(self, other)

    def ordering(self: Any, other: Any) -> Any:
        need_order(name, self, other)
        return op(self, other)

    return of_tensors if op.second_is_tensor else ordering if orders else method


def need_tensor(function: str, argument: str, value: Any) -> Any:
    """``value`` if it is a tensor; torch takes no numbers in the second place of some functions."""
    if not isinstance(value, Value):
        raise TypeError(
            f"{function}(): argument '{argument}' (position 2) must be Tensor, not {type(value).__name__}"
        )
    return value


def _inplace_method(op: Op) -> Callable[..., Any]:
    """``name_``: the op, or the method of its name where that checks more, written into ``self``."""
    name, count = op.name, len(op.inputs) - 1

    def write_op(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            return inplace(op, self, *args)
        return inplace(getattr(type(self), name), self, *args, **kwargs)

    def write_reals(self: Any, *args: Any, **kwargs: Any) -> Any:
        missing = count - len(args)
        if not kwargs and missing >= 0 and (args or not missing) and _all_real(self, *args):
            return inplace(op, self, *args, *(None,) * missing)
        return inplace(getattr(type(self), name), self, *args, **kwargs)

    if op.inplace_form == "method" or op.second_is_tensor or op.orders:
        return through_method(name)
    return as_inplace_form(write_reals if op.inplace_form == "reals" else write_op, name)


def _all_real(*values: Any) -> bool:
    """Tensors of floats, and numbers that are no booleans."""
    return all(
        v.raw.dtype.kind == "f" if isinstance(v, Value) else v.__class__ in (int, float) for v in values
    )
