"""Reroute public functions through ``__torch_function__`` while a class or a mode overrides functions.

A check in every function would slow every call. Instead the code object of a function is replaced by one that
checks; the function object, which callers store and compare, stays the same. See ADR 0038.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, partial
from types import CodeType, FunctionType
from typing import Any

from tenon.compat.overriding import MODES, NAMESPACES, PLAIN, Function, call_overrides, can_override
from tenon.tensors.wrong_arguments import Rerouting, guard

#: The function that PyTorch passes to a handler where Python calls the method of an operator.
_PASSED_FUNCTION = {
    "abs": "abs", "add": "add", "radd": "add", "iadd": "add_", "isub": "sub_", "sub": "sub", "mul": "mul",
    "rmul": "mul", "imul": "mul_", "truediv": "div", "itruediv": "div_", "mod": "remainder",
    "imod": "remainder_", "ifloordiv": "floor_divide_", "pow": "pow", "ipow": "pow_", "matmul": "matmul",
    "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "rand": "bitwise_and", "ror": "bitwise_or",
    "rxor": "bitwise_xor", "neg": "neg", "pos": "positive",
}  # fmt: skip
#: Methods that Python calls on classes or very often, and those that handlers themselves need.
_NOT_OVERRIDABLE = frozenset(
    ["as_subclass", "__new__", "__init__", "__init_subclass__", "__torch_function__",
     "__iter__", "__hash__", "__setattr__", "__delattr__", "__getattribute__", "__sizeof__"]
)  # fmt: skip


#: The code that replaces a function's. Code starts by loading the closure's cells, so there is one version
#: for each number of cells: with another number, code that inspects the frame's locals (a debugger, pytest)
#: reads invalid memory.
_DETOUR = """
def around({closed}):
    def detour(*args, **kwargs):
        if 0:
            return {closed}
        plain, modes, original, overridden = ("plain", "modes", "original", "overridden")
        if not kwargs and not modes:
            for a in args:
                if a.__class__ not in plain:
                    break
            else:
                return original(*args)
        return overridden(args, kwargs)
    return detour
"""


@cache
def _detour(closed: int) -> CodeType:
    """Return the code of rerouted functions whose closures have ``closed`` cells."""
    space: dict[str, Function] = {}
    names = [f"closed{k}" for k in range(closed)]
    exec(compile(_DETOUR.format(closed=", ".join(names)), __file__, "exec"), space)
    detour = space["around"](*names)
    return detour.__code__


_PLACEHOLDERS = ("plain", "modes", "original", "overridden")
#: Ids of functions that only modes can override, as they take no tensor.
BARE: set[int] = set()
#: Function -> its original code, and the code that checks for overrides.
_ROUTES: dict[FunctionType, tuple[CodeType, CodeType]] = {}
#: Why functions are rerouted now: active modes, and ``call_overrides`` for a class, which is permanent.
_reasons: list[object] = []


def register(namespace: str, functions: Mapping[str, object], bare: Iterable[str] = ()) -> None:
    """Register the public functions of a namespace.

    ``bare`` names those that take no tensor, so that only modes override them.
    """
    members = {n: f for n, f in functions.items() if isinstance(f, FunctionType)}
    guard(members.values(), int(namespace != "torch.Tensor"), REROUTING)
    NAMESPACES.setdefault(namespace, {}).update(members)
    BARE.update(id(members[name]) for name in bare)
    if _reasons:
        _exchange()


def register_methods(cls: type) -> None:
    """Register the methods and properties of Tensor."""
    NAMESPACES["torch.Tensor"] = members = methods_of(cls)
    guard(members.values(), 0, REROUTING)


def methods_of(cls: type) -> dict[str, FunctionType | property]:
    """Return public methods, operators and properties of ``cls`` by name, in method resolution order."""
    members: dict[str, FunctionType | property] = {}
    for base in cls.__mro__:
        for name, member in vars(base).items():
            public = name.endswith("__") or not name.startswith("_") or name in ("_version", "_base")
            if public and name not in _NOT_OVERRIDABLE and isinstance(member, (FunctionType, property)):
                members.setdefault(name, member)
    return members


def reroute_permanently() -> None:
    """Reroute functions from now on."""
    if not _reasons or _reasons[0] is not call_overrides:
        _reasons.insert(0, call_overrides)
        _exchange()


def restore_all() -> None:
    """Restore the code of all functions, whatever classes and modes there are: for measurements."""
    if _reasons:
        _reasons.clear()
        MODES.clear()
        _exchange()


def is_new_override(value: object) -> bool:
    """Whether ``value`` can override functions, and no function is rerouted yet."""
    return not _reasons and can_override(type(value))


REROUTING = Rerouting(is_new_override, reroute_permanently)


def refused(value: object) -> Any:  # NotImplemented is of no type that operators can return
    """Return NotImplemented; if ``value`` is the first object to override functions, raise TypeError, for
    which the operator's guard repeats the call."""
    if is_new_override(value):
        raise TypeError(f"unsupported operand type: {type(value).__name__}")
    return NotImplemented


def reroute(mode: object) -> None:
    """Reroute functions until ``restore(mode)``."""
    MODES.append(mode)
    reroute_for(mode)


def restore(mode: object) -> None:
    """Restore the functions' code unless another mode or class overrides functions."""
    MODES.remove(mode)
    end_rerouting_for(mode)


def reroute_for(reason: object) -> None:
    """Reroute functions until ``end_rerouting_for(reason)``: for objects with a limited lifetime."""
    _reasons.append(reason)
    if len(_reasons) == 1:
        _exchange()


def rerouted_by(reason: object) -> bool:
    """Whether functions are rerouted for ``reason``."""
    return any(each is reason for each in _reasons)


def end_rerouting_for(reason: object) -> None:
    """Restore the functions' code unless there is another reason to reroute them."""
    _reasons.remove(reason)
    if not _reasons:
        _exchange()


def _exchange() -> None:
    """Set the code object of every function: the one that checks for overrides if there is a reason, else its
    own."""
    for namespace, members in NAMESPACES.items():
        for name, member in members.items():
            for function, public in _functions_of(namespace, name, member):
                if function not in _ROUTES:
                    _ROUTES[function] = function.__code__, _rerouted_code(function, public)
    for function, codes in _ROUTES.items():
        function.__code__ = codes[bool(_reasons)]


def _functions_of(
    namespace: str, name: str, member: FunctionType | property
) -> Iterable[tuple[FunctionType, Function]]:
    """Yield the functions of which ``member`` consists, each with the function that handlers receive for
    it."""
    if isinstance(member, property):
        for function, public in (
            (member.fget, member.__get__), (member.fset, member.__set__), (member.fdel, member.__delete__),
        ):  # fmt: skip
            if isinstance(function, FunctionType):
                yield function, public
    elif namespace == "torch.Tensor" and name.startswith("__"):
        passed = NAMESPACES[namespace].get(_PASSED_FUNCTION.get(name.strip("_"), name))
        if passed is not None:  # else its op is not imported yet; this runs again when it is
            yield member, passed
    else:
        yield member, member


def _rerouted_code(function: FunctionType, public: Function) -> CodeType:
    """Return a code object for ``function`` that checks for overrides before it runs the current code."""
    code, defaults = function.__code__, function.__defaults__
    original = FunctionType(code, function.__globals__, function.__name__, defaults, function.__closure__)
    original.__kwdefaults__, original.__annotations__ = function.__kwdefaults__, function.__annotations__
    if not hasattr(function, "__wrapped__"):
        function.__wrapped__ = original  # type: ignore[attr-defined]  # whose signature it keeps
    overridden = partial(call_overrides, public, original, id(function) in BARE)
    detour = _detour(len(code.co_freevars))
    consts = tuple(
        (PLAIN, MODES, original, overridden) if c == _PLACEHOLDERS else c for c in detour.co_consts
    )
    return detour.replace(co_consts=consts, co_name=function.__name__)
