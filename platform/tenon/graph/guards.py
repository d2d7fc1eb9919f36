"""Conditions under which a recording holds, beside the shapes of its arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
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
    """The modules that ran: their tree, their hooks, and the hooks of all modules.

    Two counters of the process tell whether anything of the kind changed anywhere; only then does it look
    at its own modules.
    """

    __slots__ = ("_counters", "_found", "roots")

    def __init__(self, roots: Iterable[Any]) -> None:
        super().__init__("the modules or their hooks", self._same, self._expression)
        self.roots = list(roots)
        self._counters = _counters()
        self._found = self._look()

    def _same(self) -> bool:
        counters = _counters()
        if counters == self._counters:
            return True
        if counters[2] != self._counters[2] or self._look() != self._found:
            return False
        self._counters = counters
        return True

    def _expression(self, names: Names) -> str:
        counters, own = (names(Generation), names(scopes._structure)), names(self)
        return (
            f"(({counters[0]}.value, {counters[1]}.version, {counters[0]}.everywhere) == {own}._counters"
            f" or {own}.check())"
        )

    def _look(self) -> list[Any]:
        found: list[Any] = []
        for root in self.roots:
            for module in root.modules():
                hooks = [tuple(module.__dict__.get(name) or ()) for name in HOOKS]
                found.append((id(module), hooks, [id(p) for p in module._parameters.values()]))
        return found


def _counters() -> tuple[int, int, int]:
    return Generation.value, scopes.structure_version(), Generation.everywhere
