"""Guards: the conditions beside argument shapes under which a recording is valid."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from types import FunctionType, MethodType
from typing import Any

from tenon.tensors.generation import Generation

#: A module's dictionaries of hooks that run in calls.
HOOKS = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_backward_pre_hooks",
    "_backward_hooks",
)
#: A leaf's dictionaries of hooks that run in backward passes.
LEAF_HOOKS = ("_hooks", "_post_accumulate_hooks", "_node_hooks", "_node_prehooks")
#: An optimizer's dictionaries of hooks that run around its steps.
STEP_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


#: Number of changes without effect after which a value is no longer guarded.
PATIENCE = 8


class Names:
    """Names for objects that generated code mentions."""

    def __init__(self) -> None:
        self.space: dict[str, Any] = {"sqrt": math.sqrt}
        self._known: dict[int, str] = {}

    def __call__(self, value: Any) -> str:
        """Return a name for ``value``, the same for the same object."""
        name = self._known.get(id(value))
        if name is None:
            name = self._known[id(value)] = f"o{len(self._known)}"
            self.space[name] = value
        return name


class Guard:
    """A condition: ``check()`` is true while ``what`` is as it was recorded.

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
        """Describe what changed since the recording."""
        return f"{self.what} changed"

    def forgive(self) -> list[str]:
        """Accept a change without effect, as the same graph was recorded again; return descriptions of what
        is no longer guarded though code names it."""
        return []


def are(what: str, members: Iterable[tuple[Any, str, Any]]) -> Guard:
    """Whether for each ``(object, attribute, value)`` the attribute is that very value."""
    listed = list(members)

    def same() -> bool:
        return all(getattr(owner, name) is value for owner, name, value in listed)

    def source(names: Names) -> str:
        return " and ".join(f"{names(o)}.{n} is {literal(v, names)}" for o, n, v in listed) or "True"

    return Guard(what, same, source)


def literal(value: Any, names: Names) -> str:
    """Spell ``value`` as a literal of generated code."""
    return repr(value) if value is None or value is True or value is False else names(value)


class ModulesGuard(Guard):
    """The modules that ran: their tree, parameters, buffers, hooks, mode, plain attributes and functions; the
    hooks of all modules, and those of leaves.

    Counters of the process tell whether anything of the kind changed anywhere; only then does it look at its
    own modules.
    """

    __slots__ = ("_changes", "_counters", "_found", "_ignored", "_mentioned", "leaves", "roots")

    def __init__(self, roots: Iterable[Any], leaves: Iterable[Any], mentioned: set[str]) -> None:
        super().__init__("the modules", self._same, self._expression)
        self.roots, self.leaves = list(roots), list(leaves)
        #: Names in the code that ran.
        self._mentioned = mentioned
        #: How often each attribute has changed without effect.
        self._changes: dict[tuple[int, str], int] = defaultdict(int)
        self._counters = _counters()
        #: Attributes that are no longer guarded.
        self._ignored: set[tuple[int, str]] = set()
        self._found = self._look()

    def changed(self) -> str:
        """Describe what changed since the recording."""
        now = self._look()
        if len(now) != len(self._found):
            return "the modules or their hooks changed"
        for then, new in zip(self._found, now, strict=True):
            for kind, a, b in zip(_KINDS, then, new, strict=True):
                if a != b:
                    return f"{kind}{_names_of(a, b)} of {type(new[0].owner).__name__} changed"
        return "the hooks of all modules changed"

    def forgive(self) -> list[str]:
        """Accept changed attributes; stop guarding those that no code names, and those that changed often."""
        tired = []
        for then, now in zip(self._found, self._look(), strict=False):
            for name in _differing(then[-1], now[-1]):
                self._changes[key := (id(now[0].owner), name)] += 1
                if name not in self._mentioned or self._changes[key] > PATIENCE:
                    self._ignored.add(key)
                    if name in self._mentioned:
                        tired.append(f"the attribute {name!r} of {type(now[0].owner).__name__}")
        self._found = self._look()
        return tired

    def _same(self) -> bool:
        counters = _counters()
        if counters == self._counters:
            return True
        if counters[-1] != self._counters[-1] or self._look() != self._found:
            return False
        self._counters = counters
        return True

    def _expression(self, names: Names) -> str:
        generation, own = names(Generation), names(self)
        return (
            f"(({generation}.value, {generation}.attributes, {generation}.structure, {generation}.everywhere)"
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
                    name: (value.__class__, value if is_plain(value) else Same(value))
                    for name, value in own.items()
                    if (is_plain(value) or isinstance(value, FunctionType | MethodType))
                    and name != "training"
                    and (id(module), name) not in self._ignored
                }
                found.append((Same(module), hooks, tensors, own.get("training"), plain))
        for leaf in self.leaves:
            own = leaf.__dict__
            hooks = [tuple(own.get(name) or ()) for name in LEAF_HOOKS]
            found.append((Same(leaf), hooks, None, None, {}))
        return found


#: What ``ModulesGuard._look`` finds of each module.
_KINDS = ("the identity", "the hooks", "a parameter or buffer", "train() or eval()", "the attribute")


class Same:
    """Wraps an object to compare by identity."""

    __slots__ = ("owner",)

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.owner is other.owner

    __hash__ = None  # type: ignore[assignment]


def is_plain(value: Any) -> bool:
    """Whether values of this kind are compared by ``==``: numbers, flags, strings, tuples of them."""
    return value.__class__ in _PLAIN or (value.__class__ is tuple and all(map(is_plain, value)))


_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})


def _differing(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    return [name for name in {**a, **b} if name not in a or name not in b or a[name] != b[name]]


def _names_of(a: Any, b: Any) -> str:
    return "".join(f" {name!r}" for name in _differing(a, b)) if isinstance(a, dict) else ""


def _counters() -> tuple[int, int, int, int]:
    return Generation.value, Generation.attributes, Generation.structure, Generation.everywhere
