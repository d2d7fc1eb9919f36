"""Generate Tensor's methods that are one op each from the op classes: ``exp``, ``exp_``, ``greater``.

``attach`` is called with every op that registers, so that a new op has its methods and functions at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from tenon.compat.node_names import titled
from tenon.compat.rerouting import register
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Op, Primitive
from tenon.engine.operands import wrong_type
from tenon.engine.value import Value
from tenon.tensors.inplace import inplace
from tenon.tensors.methods.arithmetic import Arithmetic, need_order
from tenon.tensors.methods.function_forms import FUNCTION_FORMS, FunctionForm
from tenon.tensors.methods.in_place import as_inplace_form, through_method
from tenon.tensors.wrong_arguments import FAILURES, only_numbers, refuse_wrong

if TYPE_CHECKING:
    from tenon.engine.types import Attrs
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Number

T = TypeVar("T")
#: A method of Tensor.
Method: TypeAlias = Callable[..., "Tensor"]

_NO_ATTRS: Attrs = {}
_NO_OUT = FunctionForm(out="none")


def attach(families: tuple[type, ...], op: Op) -> None:
    """Add to Tensor those methods of ``op`` that no class of ``families`` defines, and its functions to
    ``FUNCTION_FORMS``."""
    if not op.public:
        return
    result: dict[str, Method] = {}
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
    result: dict[str, Method], families: tuple[type, ...], op: Op, suffix: str, make: Callable[[Op], Method]
) -> list[str]:
    """Add the method of ``op``, or its in-place form, to ``result`` under all its names; return the names."""
    method = _defined(families, f"{op.name}{suffix}") or make(op)
    names = [f"{name}{suffix}" for name in (op.name, *op.aliases)]
    for name in names:
        if _defined(families, name) is None:
            title = _title(op, name.removesuffix("_"), suffix)
            result[name] = titled(title)(method) if title else method
    return names


def _title(op: Op, name: str, suffix: str) -> str:
    """Return PyTorch's name of the method's gradient node where it differs from the op's, else ""."""
    if suffix and op.inplace_overload:
        return op.torch_name((), {}).replace("Backward0", "Backward1")
    return op.alias_grad_names.get(name, "")


def _defined(families: tuple[type, ...], name: str) -> Method | None:
    """Return the method ``name`` that a class of ``families`` defines."""
    return next((vars(family)[name] for family in families if name in vars(family)), None)


def _method(op: Op) -> Method:
    method = _unary(op) if len(op.inputs) == 1 else _binary(op)
    method.__name__, method.__qualname__ = op.name, f"Tensor.{op.name}"
    method.__doc__ = op.__doc__
    return method


def _unary(op: Op) -> Method:
    def primitive(self: Tensor) -> Tensor:
        return SLOT.single(op, self, _NO_ATTRS) if SLOT.top is None else op(self)

    def composite(self: Tensor) -> Tensor:
        return op(self)

    return primitive if isinstance(op, Primitive) else composite


def _binary(op: Op) -> Method:
    name, orders = op.name, op.orders

    def method(self: Tensor, other: Tensor | Number) -> Tensor:
        if other is None:
            only_numbers(other)
        return op(self, other)

    def of_tensors(self: Tensor, other: Tensor) -> Tensor:
        need_tensor(name, "other", other)
        if orders:
            need_order(name, self, other)
        return op(self, other)

    def ordering(self: Tensor, other: Tensor | Number) -> Tensor:
        need_order(name, self, other)
        return op(self, other)

    return of_tensors if op.second_is_tensor else ordering if orders else method


def need_tensor(function: str, argument: str, value: T) -> T:
    """Return ``value``, the second argument of ``function``; TypeError unless it is a tensor."""
    if not isinstance(value, Value):
        raise wrong_type(function, argument, 2, value)
    return value


def _inplace_method(op: Op) -> Method:
    """Make ``name_``, which writes into ``self`` the result of the op, or of the method ``name`` where that
    checks its arguments."""
    name, count = op.name, len(op.inputs) - 1

    def write_op(self: Tensor, *args: object, **kwargs: object) -> Tensor:
        try:
            if not kwargs:
                return inplace(op, self, *args)
            return inplace(getattr(type(self), name), self, *args, **kwargs)
        except FAILURES:
            refuse_wrong(getattr(type(self), name), (self, *args), kwargs, f"{name}_", first=0)
            raise

    def write_reals(self: Tensor, *args: object, **kwargs: object) -> Tensor:
        missing = count - len(args)
        try:
            if not kwargs and missing >= 0 and (args or not missing) and _all_real(self, *args):
                return inplace(op, self, *args, *(None,) * missing)
            return inplace(getattr(type(self), name), self, *args, **kwargs)
        except FAILURES:
            refuse_wrong(getattr(type(self), name), (self, *args), kwargs, f"{name}_", first=0)
            raise

    if op.inplace_form == "method" or op.second_is_tensor or op.orders or op.boolean:
        return through_method(name)
    return as_inplace_form(write_reals if op.inplace_form == "reals" else write_op, name)


def _all_real(*values: object) -> bool:
    """Whether all of ``values`` are tensors of floats, integers or floats."""
    return all(
        v.raw.dtype.kind == "f" if isinstance(v, Value) else v.__class__ in (int, float) for v in values
    )
