"""Guards: conditions, other than those on argument shapes, under which a recording is valid."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, TypeAlias

from tenon.tensors.generation import Generation
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.nn.module import Module

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
    """Names for the objects that generated code refers to; ``space`` are its global variables."""

    def __init__(self) -> None:
        self.space: dict[str, object] = {"sqrt": math.sqrt}
        self._known: dict[int, str] = {}

    def __call__(self, value: object) -> str:
        """Return a name for ``value``, the same for the same object."""
        name = self._known.get(id(value))
        if name is None:
            name = self._known[id(value)] = f"o{len(self._known)}"
            self.space[name] = value
        return name


class Guard:
    """A condition: ``check()`` is true while ``what`` is unchanged since the recording.

    ``source(names)`` is the condition as a Python expression, by default a call of ``check``; those of all
    guards of a program are joined into one.
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

    def accept_change(self) -> list[str]:
        """Accept a change after which the same graph was recorded again.

        Returns descriptions of the values that are no longer guarded from now on though the code names them.
        """
        return []


def attributes_guard(what: str, members: Iterable[tuple[object, str, object]]) -> Guard:
    """Return the guard that for each ``(object, attribute, value)`` the attribute is the same object
    ``value``."""
    listed = list(members)

    def same() -> bool:
        return all(getattr(owner, name) is value for owner, name, value in listed)

    def source(names: Names) -> str:
        return " and ".join(f"{names(o)}.{n} is {literal(v, names)}" for o, n, v in listed) or "True"

    return Guard(what, same, source)


def literal(value: object, names: Names) -> str:
    """Return ``value`` in generated code: None and bools as literals, any other object by its name."""
    return repr(value) if value is None or value is True or value is False else names(value)


#: The state of a module or leaf: the object, keys of its hooks, parameters and buffers, training mode, and
#: the plain attributes.
Inspection: TypeAlias = tuple[
    "Same",
    list[tuple[int, ...]],
    list[tuple[str, "Same"]] | None,
    bool | None,
    dict[str, tuple[type, object]],
]


class ModulesGuard(Guard):
    """Guards the modules that ran: their tree, parameters, buffers, hooks, mode, plain attributes and
    functions; also the hooks on all modules, and those on leaves.

    Process-wide counters count changes of that kind. Only if one differs are the modules inspected.
    """

    __slots__ = ("_changes", "_counters", "_ignored", "_mentioned", "_snapshot", "leaves", "roots")

    def __init__(self, roots: Iterable[Module], leaves: Iterable[Tensor], mentioned: set[str]) -> None:
        super().__init__("the modules", self._same, self._expression)
        self.roots, self.leaves = list(roots), list(leaves)
        #: The names in the code that ran.
        self._mentioned = mentioned
        #: How often each attribute has changed without effect.
        self._changes: dict[tuple[int, str], int] = defaultdict(int)
        self._counters = _counters()
        #: Attributes that are no longer guarded.
        self._ignored: set[tuple[int, str]] = set()
        self._snapshot = self._inspect()

    def changed(self) -> str:
        """Describe what changed since the recording."""
        now = self._inspect()
        if len(now) != len(self._snapshot):
            return "the modules or their hooks changed"
        for then, new in zip(self._snapshot, now, strict=True):
            for kind, a, b in zip(_KINDS, then, new, strict=True):
                if a != b:
                    return f"{kind}{_names_of(a, b)} of {type(new[0].owner).__name__} changed"
        return "the hooks of all modules changed"

    def accept_change(self) -> list[str]:
        """Accept changed attributes; stop guarding those that no code names, and those that changed often."""
        unguarded = []
        for then, now in zip(self._snapshot, self._inspect(), strict=False):
            for name in _differing(then[-1], now[-1]):
                self._changes[key := (id(now[0].owner), name)] += 1
                if name not in self._mentioned or self._changes[key] > PATIENCE:
                    self._ignored.add(key)
                    if name in self._mentioned:
                        unguarded.append(f"the attribute {name!r} of {type(now[0].owner).__name__}")
        self._snapshot = self._inspect()
        return unguarded

    def _same(self) -> bool:
        counters = _counters()
        if counters == self._counters:
            return True
        if counters[-1] != self._counters[-1] or self._inspect() != self._snapshot:
            return False
        self._counters = counters
        return True

    def _expression(self, names: Names) -> str:
        generation, own = names(Generation), names(self)
        return (
            f"(({generation}.value, {generation}.attributes, {generation}.structure, {generation}.everywhere)"
            f" == {own}._counters or {own}.check())"
        )

    def _inspect(self) -> list[Inspection]:
        """Return the present state of each module and leaf."""
        states: list[Inspection] = []
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
                states.append((Same(module), hooks, tensors, own.get("training"), plain))
        for leaf in self.leaves:
            own = leaf.__dict__
            hooks = [tuple(own.get(name) or ()) for name in LEAF_HOOKS]
            states.append((Same(leaf), hooks, None, None, {}))
        return states


#: What the entries of an ``Inspection`` describe.
_KINDS = ("the identity", "the hooks", "a parameter or buffer", "train() or eval()", "the attribute")


class Same:
    """Wraps an object so that ``==`` compares its identity."""

    __slots__ = ("owner",)

    def __init__(self, owner: object) -> None:
        self.owner = owner

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.owner is other.owner

    __hash__ = None  # type: ignore[assignment]


def is_plain(value: object) -> bool:
    """Whether guards compare ``value`` by ``==``: a number, bool, string, None, or a tuple of them."""
    return value.__class__ in _PLAIN or (value.__class__ is tuple and all(map(is_plain, value)))


_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})


def _differing(a: Mapping[str, object], b: Mapping[str, object]) -> list[str]:
    """Return the keys whose values differ, or that only one of both has."""
    return [name for name in {**a, **b} if name not in a or name not in b or a[name] != b[name]]


def _names_of(a: object, b: object) -> str:
    """Return the names of the differing entries if both are dicts, as text to append."""
    if not isinstance(a, dict) or not isinstance(b, dict):
        return ""
    return "".join(f" {name!r}" for name in _differing(a, b))


def _counters() -> tuple[int, int, int, int]:
    return Generation.value, Generation.attributes, Generation.structure, Generation.everywhere
