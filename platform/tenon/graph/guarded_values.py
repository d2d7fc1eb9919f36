"""Guards on the Python values that a recorded function may have read: variables, attributes and items that
its code names, including that of helpers, methods, hooks and modules.

A program is valid while they are unchanged: numbers, bools and strings equal, all others the same object.
Other guards cover tensors and the state of optimizers and modules.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tenon.engine.value import Value
from tenon.graph.frames import Frames, is_library
from tenon.graph.guards import PATIENCE, Guard, Names, is_plain

if TYPE_CHECKING:
    from tenon.nn.module import Module

#: The largest container whose members are guarded one by one, and NumPy array whose numbers are.
_MEMBERS = 64
_NUMBERS = 4096
#: How deep containers and objects are searched.
_DEPTH = 6
_MISSING = object()
#: Ids of the objects that were searched; of class attributes ``(id of the class, name)``.
Seen: TypeAlias = set[int | tuple[int, str]]


class GuardedValue:
    """One guarded value: ``read()`` reads it, ``recorded`` is its value at the recording."""

    __slots__ = ("changes", "read", "recorded", "source", "what")

    def __init__(self, what: str, read: Callable[[], object], source: Callable[[Names], str] | None) -> None:
        self.what = what
        self.read = read
        #: ``read()`` as a Python expression; None if there is no short one.
        self.source = source
        self.recorded = read()
        #: How often it has changed without effect.
        self.changes = 0

    def holds(self) -> bool:
        """Whether the value is unchanged."""
        return _unchanged(self.read(), self.recorded)

    def expression(self, names: Names) -> str:
        """Return ``holds()`` as a Python expression."""
        if self.source is None:
            return f"{names(self.holds)}()"
        now, then = self.source(names), names(self.recorded)
        if not is_plain(self.recorded) or self.recorded.__class__ in (bool, type(None)):
            return f"{now} is {then}"
        return f"((v := {now}) is {then} or v.__class__ is {names(self.recorded.__class__)} and v == {then})"


class GuardedValues(Guard):
    """The guard that all values that ``function`` may have read are unchanged."""

    __slots__ = ("mentioned", "modules", "quick", "values")

    def __init__(self, function: Callable[..., object], frames: Frames) -> None:
        super().__init__("a variable", self._same, lambda names: f"{names(self)}.quick()")
        #: The names in the code that ran.
        self.mentioned = frames.mentioned
        #: The modules found in the search.
        self.modules: list[Module] = []
        self.values = list(self._find(function, frames))
        #: All conditions as one compiled expression.
        self.quick = self._compiled()

    def read_all(self) -> list[object]:
        """Return the present values."""
        return [value.read() for value in self.values]

    def differing(self, before: list[object]) -> list[str]:
        """Describe the values that differ from ``before``, an earlier result of ``read_all()``."""
        pairs = zip(self.values, before, strict=True)
        return [value.what for value, earlier in pairs if not _unchanged(value.read(), earlier)]

    def changed(self) -> str:
        """Describe the values that changed."""
        return f"{', '.join(p.what for p in self.values if not p.holds())} changed"

    def accept_change(self) -> list[str]:
        """Accept the changes; stop guarding values that changed too often, and return those."""
        dropped = []
        for value in self.values:
            if not value.holds():
                value.recorded, value.changes = value.read(), value.changes + 1
                if value.changes > PATIENCE:
                    dropped.append(value)
        self.values = [value for value in self.values if value not in dropped]
        self.quick = self._compiled()
        return [value.what for value in dropped]

    def _same(self) -> bool:
        return all(value.holds() for value in self.values)

    def _compiled(self) -> Callable[[], bool]:
        names = Names()
        checks = " and ".join(value.expression(names) for value in self.values) or "True"
        return eval(f"lambda: {checks}", names.space)

    # --- search ---

    # ``function`` is a function, a partial, a method or any object with ``__call__``.
    def _find(self, function: Any, frames: Frames) -> Iterator[GuardedValue]:
        seen: Seen = set()
        while isinstance(function, functools.partial):
            yield from self._inside("an argument", function, seen, 0)
            function = function.func
        owner = getattr(function, "__self__", None)
        for value in (owner, *(reference() for reference in frames.passed.values())):
            yield from self._inside(type(value).__name__, value, seen, 0)
        if not isinstance(function, FunctionType | MethodType):
            function = type(function).__call__
        for each in frames.functions(getattr(function, "__func__", function)):
            for name, cell in zip(each.__code__.co_freevars, each.__closure__ or (), strict=True):
                if name != "__class__" and id(cell) not in seen:
                    seen.add(id(cell))
                    yield from self._cell(name, cell, seen)
        for name, space in {(n, id(s)): (n, s) for c, s in frames.codes.items() for n in c.co_names}.values():
            yield from self._item(f"the variable {name!r}", space, name, seen, 0)

    def _cell(self, name: str, cell: CellType, seen: Seen) -> Iterator[GuardedValue]:
        value = _contents(cell)
        if value is not _MISSING and _matters(value):
            what = f"the variable {name!r}"
            yield GuardedValue(
                what, functools.partial(_contents, cell), lambda names: f"{names(cell)}.cell_contents"
            )
        yield from self._inside(name, value, seen, 0)

    def _item(
        self, what: str, owner: Mapping[str, object], key: str, seen: Seen, depth: int
    ) -> Iterator[GuardedValue]:
        """Yield the value of a variable or attribute, in the dictionary ``owner``, and those inside of it."""
        value = owner.get(key, _MISSING)
        if value is _MISSING:
            return
        if _matters(value):
            yield _entry(what, owner, key)
        yield from self._inside(key, value, seen, depth)

    def _inside(self, name: str, value: object, seen: Seen, depth: int) -> Iterator[GuardedValue]:
        """Yield the members of a container, or of another object the attributes that the code names."""
        if depth > _DEPTH or id(value) in seen or is_plain(value) or isinstance(value, Value):
            return
        seen.add(id(value))
        if isinstance(value, np.ndarray):
            if value.size <= _NUMBERS:
                yield GuardedValue(f"a number in {name!r}", value.tobytes, None)
        elif isinstance(value, functools.partial):
            yield from self._inside(name, value.keywords, seen, depth + 1)
            yield from self._inside(name, value.args, seen, depth + 1)
        elif isinstance(value, _CONTAINERS):
            if not isinstance(value, tuple):
                yield GuardedValue(f"an item of {name!r}", functools.partial(_members, value), None)
            for each in _members(value):
                yield from self._inside(name, each, seen, depth + 1)
        elif isinstance(value, FunctionType | BuiltinFunctionType | MethodType):
            yield from self._inside(name, getattr(value, "__self__", None), seen, depth + 1)
        else:
            yield from self._attributes(name, value, seen, depth)

    # A module shows as one by its class, which this layer does not import.
    def _attributes(self, name: str, value: Any, seen: Seen, depth: int) -> Iterator[GuardedValue]:
        is_module = hasattr(type(value), "named_modules")
        if is_module:
            self.modules.append(value)
        kind = value if isinstance(value, type) else type(value)
        named = value.__name__ if isinstance(value, ModuleType) else f"{kind.__module__}.{kind.__qualname__}"
        if is_library(named) and named not in _OPEN:
            return
        own = {} if isinstance(value, type) else getattr(value, "__dict__", {})
        for key in self._named(own):
            if is_module and (is_plain(own[key]) or key in _OF_MODULES):
                continue  # see ModulesGuard
            yield from self._item(f"the attribute {key!r} of {name!r}", own, key, seen, depth + 1)
        for each in () if isinstance(value, ModuleType) else kind.__mro__:
            if not is_library(each.__module__):
                yield from self._of_class(name, value, own, each, seen, depth + 1)

    def _named(self, space: Iterable[str]) -> list[str]:
        """Return the keys of ``space`` that the code names and whose values it may call or compute with."""
        return [key for key in space if key in self.mentioned and key not in _SILENT]

    def _of_class(
        self, name: str, value: object, own: Mapping[str, object], kind: type, seen: Seen, depth: int
    ) -> Iterator[GuardedValue]:
        """Yield the attributes of the class ``kind`` of ``value``: numbers, containers, methods, slots."""
        space = vars(kind)
        for key in self._named(space):
            attribute, what = space[key], f"the attribute {key!r} of {name!r}"
            if type(attribute).__name__ == "member_descriptor" and not isinstance(value, type):
                yield GuardedValue(what, functools.partial(getattr, value, key, _MISSING), None)
                yield from self._inside(key, getattr(value, key, None), seen, depth)
            elif (is_plain(attribute) or isinstance(attribute, (*_CONTAINERS, *_METHODS))) and key not in own:
                if own and is_plain(attribute):
                    yield _entry(what, own, key)  # absent, so the class's is used
                if (id(kind), key) not in seen:
                    seen.add((id(kind), key))
                    yield from self._item(what, space, key, seen, depth)


#: Attributes of classes that a replay does not read, as it creates no objects of the user's classes.
_SILENT = frozenset({"__class__", "__dict__", "__doc__", "__init__", "__module__", "__qualname__"})
#: Classes of the standard library whose instances hold the user's attributes.
_OPEN = frozenset({"types.SimpleNamespace", "argparse.Namespace"})
_CONTAINERS = (dict, list, tuple, set, deque)
_METHODS = (FunctionType, property, classmethod, staticmethod)
_OF_MODULES = frozenset({"_parameters", "_buffers", "_modules", "training"})


def _entry(what: str, owner: Mapping[str, object], key: str) -> GuardedValue:
    """Return the guarded value of ``key`` in a dictionary."""
    read = functools.partial(owner.get, key, _MISSING)
    return GuardedValue(what, read, lambda names: f"{names(owner)}.get({key!r}, {names(_MISSING)})")


def _matters(value: object) -> bool:
    """Whether to guard the identity of ``value``: not of classes, modules and functions of libraries."""
    if isinstance(value, type | ModuleType):
        return False
    return not (isinstance(value, FunctionType | BuiltinFunctionType) and is_library(value.__module__))


def _members(value: Collection[object]) -> tuple[object, ...]:
    """Return the members of a container, of a dictionary keys and values; of a large one only its length."""
    if len(value) > _MEMBERS:
        return (len(value),)
    return (*value, *value.values()) if isinstance(value, dict) else tuple(value)


def _contents(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return _MISSING


def _unchanged(now: object, then: object) -> bool:
    """Whether both are one object, equal plain values, or tuples of such."""
    if now is then:
        return True
    if type(now) is tuple and type(then) is tuple:
        return len(now) == len(then) and all(map(_unchanged, now, then))
    return is_plain(now) and now.__class__ is then.__class__ and bool(now == then)
