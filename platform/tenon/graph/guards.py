"""Conditions under which a recording holds, beside the shapes of its arguments."""

from __future__ import annotations

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


class Guard:
    """``check()`` says whether ``what`` is as it was recorded."""

    __slots__ = ("check", "what")

    def __init__(self, what: str, check: Callable[[], bool]) -> None:
        self.what = what
        self.check = check


class ModulesGuard(Guard):
    """The modules that ran: their tree, their hooks, and the hooks of all modules.

    Two counters of the process tell whether anything of the kind changed anywhere; only then does it look
    at its own modules.
    """

    __slots__ = ("_counters", "_found", "roots")

    def __init__(self, roots: Iterable[Any]) -> None:
        super().__init__("the modules or their hooks", self._same)
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

    def _look(self) -> list[Any]:
        found: list[Any] = []
        for root in self.roots:
            for module in root.modules():
                hooks = [tuple(module.__dict__.get(name) or ()) for name in HOOKS]
                found.append((id(module), hooks, [id(p) for p in module._parameters.values()]))
        return found


def _counters() -> tuple[int, int, int]:
    return Generation.value, scopes.structure_version(), Generation.everywhere
