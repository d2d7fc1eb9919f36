"""Conditions under which a recording holds, beside the shapes of its arguments."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

from tenon.core import scopes
from tenon.core.generation import Generation

#: A module's dictionaries of hooks that run in calls.
HOOKS = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_backward_pre_hooks",
    "_backward_hooks",
)
#: The same of a leaf, in backward passes.
LEAF_HOOKS = ("_hooks", "_post_accumulate_hooks")
#: An optimizer's, around its steps.
STEP_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


class Names:
    """Names for objects that generated code mentions."""

    def __init__(self) -> None:
        self.space: dict[str, Any] = {"sqrt": math.sqrt}
        self._known: dict[int, str] = {}

    def __call__(self, value: Any) -> str:
        """The name of ``value``."""
        name = self._known.get(id(value))
        if name is None:
            name = self._known[id(value)] = f"o{len(self._known)}"
            self.space[name] = value
        return name


class Guard:
    """``check()`` says whether ``what`` is as it was recorded.

    ``source(names)``, if given, is the same as a Python expression: all guards of a program become one.
    """

    __slots__ = ("check", "source", "what")

    def __init__(
        self, what: str, check: Callable[[], bool], source: Callable[[Names], str] | None = None
    ) -> None:
        self.what = what
        self.check = check
        self.source = source or (lambda names: f"{names(check)}()")

    def changed(self) -> str:
        """What is not as it was, in words."""
        return f"{self.what} changed"

    def forgive(self) -> None:
        """The same graph was recorded again: what does not matter to it need not be looked at any more."""


def are(what: str, members: Iterable[tuple[Any, str, Any]]) -> Guard:
    """Whether for each ``(object, attribute, value)`` the attribute is that very value."""
    listed = list(members)

    def same() -> bool:
        return all(getattr(owner, name) is value for owner, name, value in listed)

    def source(names: Names) -> str:
        return " and ".join(f"{names(o)}.{n} is {literal(v, names)}" for o, n, v in listed) or "True"

    return Guard(what, same, source)


def literal(value: Any, names: Names) -> str:
    """``value`` in generated code."""
    return repr(value) if value is None or value is True or value is False else names(value)


class ModulesGuard(Guard):
    """The modules that ran: their tree, parameters, buffers, hooks, mode and plain attributes; the hooks of
    all modules, and those of leaves.

    Counters of the process tell whether anything of the kind changed anywhere; only then does it look at its
    own modules.
    """

    __slots__ = ("_counters", "_found", "_ignored", "leaves", "roots")

    def __init__(self, roots: Iterable[Any], leaves: Iterable[Any] = ()) -> None:
        super().__init__("the modules", self._same, self._expression)
        self.roots, self.leaves = list(roots), list(leaves)
        self._counters = _counters()
        #: Attributes that turned out not to matter.
        self._ignored: set[tuple[int, str]] = set()
        self._found = self._look()

    def changed(self) -> str:
        """What is not as it was, in words."""
        now = self._look()
        if len(now) != len(self._found):
            return "the modules or their hooks changed"
        for then, new in zip(self._found, now, strict=True):
            for kind, a, b in zip(_KINDS, then, new, strict=True):
                if a != b:
                    return f"{kind}{_names_of(a, b)} of {type(new[0].owner).__name__} changed"
        return "the hooks of all modules changed"

    def forgive(self) -> None:
        """The same graph was recorded again: attributes that have changed do not matter to it."""
        for then, now in zip(self._found, self._look(), strict=False):
            if then[-1] != now[-1]:
                self._ignored |= {(id(now[0].owner), name) for name in _differing(then[-1], now[-1])}
        self._found = self._look()

    def _same(self) -> bool:
        counters = _counters()
        if counters == self._counters:
            return True
        if counters[-1] != self._counters[-1] or self._look() != self._found:
            return False
        self._counters = counters
        return True

    def _expression(self, names: Names) -> str:
        generation, structure, own = names(Generation), names(scopes._structure), names(self)
        return (
            f"(({generation}.value, {generation}.attributes, {structure}.version, {generation}.everywhere)"
            f" == {own}._counters or {own}.check())"
        )

    def _look(self) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for root in self.roots:
            for module in root.modules():
                own = module.__dict__
                hooks = [tuple(own.get(name) or ()) for name in HOOKS]
                tensors = [(n, Same(t)) for r in (module._parameters, module._buffers) for n, t in r.items()]
                plain = {
                    name: (value.__class__, value)
                    for name, value in own.items()
                    if _is_plain(value) and name != "training" and (id(module), name) not in self._ignored
                }
                found.append((Same(module), hooks, tensors, own.get("training"), plain))
        for leaf in self.leaves:
            own = leaf.__dict__
            hooks = [tuple(own.get(name) or ()) for name in LEAF_HOOKS]
            found.append((Same(leaf), hooks, None, None, {}))
        return found


class VariablesGuard(Guard):
    """Numbers, flags and strings that a function finds in variables outside: globals and enclosed ones."""

    __slots__ = ("_found", "_places")

    def __init__(self, function: Any) -> None:
        super().__init__("a variable", self._same, self._expression)
        self._places = {name: get for name, get, value in variables(function) if _is_plain(value)}
        self._found = self._look()

    def changed(self) -> str:
        """What is not as it was, in words."""
        return f"the variable {', '.join(map(repr, _differing(self._found, self._look())))} changed"

    def forgive(self) -> None:
        """Variables that have changed do not matter."""
        for name in _differing(self._found, self._look()):
            del self._places[name]
        self._found = self._look()

    def _same(self) -> bool:
        return self._look() == self._found

    def _expression(self, names: Names) -> str:
        return f"{names(self._same)}()" if self._places else "True"

    def _look(self) -> dict[str, Any]:
        return {name: (value.__class__, value) for name, get in self._places.items() for value in (get(),)}


def variables(function: Any) -> list[tuple[str, Callable[[], Any], Any]]:
    """Name, reader and value of the variables from outside that ``function`` mentions, and ``self``.

    Of a ``functools.partial``, also of the arguments that it brings.
    """
    found: list[tuple[str, Callable[[], Any], Any]] = []
    while isinstance(function, functools.partial):
        for place, value in enumerate(function.args):
            found.append((f"argument {place}", functools.partial(function.args.__getitem__, place), value))
        for name, value in function.keywords.items():
            found.append((f"argument {name}", functools.partial(function.keywords.get, name), value))
        function = function.func
    owner = getattr(function, "__self__", None)
    if owner is not None:
        found.append(("self", lambda: owner, owner))
    elif isinstance(type(function).__call__, FunctionType):
        owner = function
        found.append(("self", lambda: owner, owner))
        function = type(function).__call__
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType):
        return found
    code, space = function.__code__, function.__globals__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        found.append((name, functools.partial(_contents, cell), _contents(cell)))
    for name in code.co_names:
        if name in space:
            found.append((name, functools.partial(space.get, name), space[name]))
    return found + [inner for outer in found for inner in _inside(*outer, code)]


def _inside(
    name: str, get: Callable[[], Any], value: Any, code: CodeType
) -> Iterator[tuple[str, Callable[[], Any], Any]]:
    """The attributes or items of a variable that ``code`` mentions; modules have a guard of their own."""
    if isinstance(value, dict):
        for key in [key for key in value if isinstance(key, str) and key in code.co_consts]:
            yield f"{name}[{key!r}]", functools.partial(_item, get, key), value[key]
    elif not isinstance(value, (type, FunctionType)) and not hasattr(type(value), "named_modules"):
        own = getattr(value, "__dict__", {})
        for key in [key for key in code.co_names if key in own]:
            yield f"{name}.{key}", functools.partial(_attribute, get, key), own[key]


def _item(get: Callable[[], Any], key: str) -> Any:
    return get().get(key)


def _attribute(get: Callable[[], Any], key: str) -> Any:
    return getattr(get(), key, None)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


#: What ``ModulesGuard._look`` finds of each module.
_KINDS = ("the identity", "the hooks", "a parameter or buffer", "train() or eval()", "the attribute")


class Same:
    """Equal to another one of the very same object."""

    __slots__ = ("owner",)

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.owner is other.owner

    __hash__ = None  # type: ignore[assignment]


def _is_plain(value: Any) -> bool:
    return value.__class__ in _PLAIN or (value.__class__ is tuple and all(map(_is_plain, value)))


_PLAIN = frozenset({bool, int, float, complex, str, type(None)})


def _differing(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    return [name for name in {**a, **b} if name not in a or name not in b or a[name] != b[name]]


def _names_of(a: Any, b: Any) -> str:
    return "".join(f" {name!r}" for name in _differing(a, b)) if isinstance(a, dict) else ""


def _counters() -> tuple[int, int, int, int]:
    return Generation.value, Generation.attributes, scopes.structure_version(), Generation.everywhere
