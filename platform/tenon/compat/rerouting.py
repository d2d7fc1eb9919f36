"""Public functions that ask ``__torch_function__`` first, from the moment that somebody wants to be asked.

A check in every function would cost every call. Instead a function's code is exchanged for one that asks, as
long as a class or a mode is there to be asked; the function object, which others hold and compare, stays.
See ADR 0038.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, partial
from types import CodeType, FunctionType

from tenon.compat.overriding import MODES, NAMESPACES, PLAIN, Function, ask, wants

#: What torch shows a handler where Python calls an operator's method.
_SHOWN = {
    "abs": "abs", "add": "add", "radd": "add", "iadd": "add_", "isub": "sub_", "sub": "sub", "mul": "mul",
    "rmul": "mul", "imul": "mul_", "truediv": "div", "itruediv": "div_", "mod": "remainder",
    "imod": "remainder_", "ifloordiv": "floor_divide_", "pow": "pow", "ipow": "pow_", "matmul": "matmul",
    "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "rand": "bitwise_and", "ror": "bitwise_or",
    "rxor": "bitwise_xor", "neg": "neg", "pos": "positive",
}  # fmt: skip
#: What Python calls on classes or at every turn, and what a handler needs itself.
_NEVER = frozenset(
    ["as_subclass", "__new__", "__init__", "__init_subclass__", "__torch_function__",
     "__iter__", "__hash__", "__setattr__", "__delattr__", "__getattribute__", "__sizeof__"]
)  # fmt: skip


#: A code begins by fetching what its function has closed over, so there is one detour for each such number:
#: without that, looking at the frame's locals (a debugger, pytest) reads where nothing is.
_DETOUR = """
def around({closed}):
    def detour(*args, **kwargs):
        if 0:
            return {closed}
        plain, modes, original, asking = ("plain", "modes", "original", "asking")
        if not kwargs and not modes:
            for a in args:
                if a.__class__ not in plain:
                    break
            else:
                return original(*args)
        return asking(args, kwargs)
    return detour
"""


@cache
def _detour(closed: int) -> CodeType:
    """The code of functions that have closed over ``closed`` names."""
    space: dict[str, Function] = {}
    names = [f"closed{k}" for k in range(closed)]
    exec(compile(_DETOUR.format(closed=", ".join(names)), __file__, "exec"), space)
    detour = space["around"](*names)
    return detour.__code__


_PLACES = ("plain", "modes", "original", "asking")
#: Functions about which only modes are asked: they take no tensor.
BARE: set[int] = set()
#: Function -> its own code and that which asks.
_ROUTES: dict[FunctionType, tuple[CodeType, CodeType]] = {}
#: Why functions ask now: a class that stays, and modes.
_reasons: list[object] = []


def register(namespace: str, functions: Mapping[str, object], bare: Iterable[str] = ()) -> None:
    """Name the public functions of a namespace; only modes are asked about ``bare`` ones."""
    held = {n: f for n, f in functions.items() if isinstance(f, FunctionType)}
    NAMESPACES.setdefault(namespace, {}).update(held)
    BARE.update(id(held[name]) for name in bare)
    if _reasons:
        _exchange()


def register_methods(cls: type) -> None:
    """Name the methods and properties of Tensor."""
    NAMESPACES["torch.Tensor"] = methods_of(cls)


def methods_of(cls: type) -> dict[str, FunctionType | property]:
    """Public methods, operators and properties of ``cls`` by name, the nearest of each name."""
    members: dict[str, FunctionType | property] = {}
    for base in cls.__mro__:
        for name, member in vars(base).items():
            public = name.endswith("__") or not name.startswith("_") or name in ("_version", "_base")
            if public and name not in _NEVER and isinstance(member, (FunctionType, property)):
                members.setdefault(name, member)
    return members


def ask_for_good() -> None:
    """Have functions ask from now on."""
    if not _reasons or _reasons[0] is not ask:
        _reasons.insert(0, ask)
        _exchange()


def ask_nobody() -> None:
    """Give functions their own code again, whatever classes there are: for measurements."""
    if _reasons:
        _reasons.clear()
        MODES.clear()
        _exchange()


def ask_first(value: object) -> bool:
    """Whether ``value``, which is no tensor, takes over functions, and is the first to do so."""
    fresh = not _reasons and wants(type(value))
    if fresh:
        ask_for_good()
    return fresh


def reroute(mode: object) -> None:
    """Have functions ask until ``restore(mode)``."""
    _reasons.append(mode)
    MODES.append(mode)
    if len(_reasons) == 1:
        _exchange()


def restore(mode: object) -> None:
    """``mode`` is over."""
    _reasons.remove(mode)
    MODES.remove(mode)
    if not _reasons:
        _exchange()


def _exchange() -> None:
    """Give every function the code that is due."""
    for namespace, members in NAMESPACES.items():
        for name, member in members.items():
            for function, public in _faces(namespace, name, member):
                if function not in _ROUTES:
                    _ROUTES[function] = function.__code__, _asking(function, public)
    for function, codes in _ROUTES.items():
        function.__code__ = codes[bool(_reasons)]


def _faces(
    namespace: str, name: str, member: FunctionType | property
) -> Iterable[tuple[FunctionType, Function]]:
    """The functions of which ``member`` consists, each with what handlers are shown."""
    if isinstance(member, property):
        for function, public in (
            (member.fget, member.__get__), (member.fset, member.__set__), (member.fdel, member.__delete__),
        ):  # fmt: skip
            if isinstance(function, FunctionType):
                yield function, public
    elif namespace == "torch.Tensor" and name.startswith("__"):
        shown = NAMESPACES[namespace].get(_SHOWN.get(name.strip("_"), name))
        if shown is not None:  # else its op is not imported yet, and comes back here when it is
            yield member, shown
    else:
        yield member, member


def _asking(function: FunctionType, public: Function) -> CodeType:
    """Code for ``function`` that asks before it runs the code of now."""
    code, defaults = function.__code__, function.__defaults__
    original = FunctionType(code, function.__globals__, function.__name__, defaults, function.__closure__)
    original.__kwdefaults__ = function.__kwdefaults__
    if not hasattr(function, "__wrapped__"):
        function.__wrapped__ = original  # type: ignore[attr-defined]  # whose signature it keeps
    asking = partial(ask, public, original, id(function) in BARE)
    detour = _detour(len(code.co_freevars))
    consts = tuple((PLAIN, MODES, original, asking) if c == _PLACES else c for c in detour.co_consts)
    return detour.replace(co_consts=consts, co_name=function.__name__)
