"""Guards on the Python values that a recorded function may have read: variables, attributes and items that
its code names, in helpers, methods, hooks and modules alike.

A program is valid while they are unchanged: numbers, flags and strings equal, anything else the same object.
Other guards cover the values of tensors and the state of optimizers and modules.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from tenon.engine.value import Value
from tenon.graph.frames import Frames, ours
from tenon.graph.guards import PATIENCE, Guard, Names, is_plain

#: Members of a container that are looked at one by one, and numbers of a NumPy array.
_MEMBERS = 64
_NUMBERS = 4096
_DEPTH = 6
_MISSING = object()


class Place:
    """One guarded value: ``read()`` reads it, ``recorded`` is its value at the recording."""

    __slots__ = ("changes", "read", "recorded", "source", "what")

    def __init__(self, what: str, read: Callable[[], Any], source: Callable[[Names], str] | None) -> None:
        self.what = what
        self.read = read
        #: ``read()`` as a Python expression, if there is a short one.
        self.source = source
        self.recorded = read()
        self.changes = 0

    def holds(self) -> bool:
        """Whether the value is unchanged."""
        return _alike(self.read(), self.recorded)

    def expression(self, names: Names) -> str:
        """``holds()`` as a Python expression."""
        if self.source is None:
            return f"{names(self.holds)}()"
        now, then = self.source(names), names(self.recorded)
        if not is_plain(self.recorded) or self.recorded.__class__ in (bool, type(None)):
            return f"{now} is {then}"
        return f"((v := {now}) is {then} or v.__class__ is {names(self.recorded.__class__)} and v == {then})"


class GuardedValues(Guard):
    """The guard that all these values are unchanged."""

    __slots__ = ("mentioned", "modules", "places", "quick")

    def __init__(self, function: Any, frames: Frames) -> None:
        super().__init__("a variable", self._same, lambda names: f"{names(self)}.quick()")
        #: Names in the code that ran.
        self.mentioned = frames.mentioned
        #: Modules encountered in the search.
        self.modules: list[Any] = []
        self.places = list(self._find(function, frames))
        self.quick = self._compiled()

    def look(self) -> list[Any]:
        """Read all values."""
        return [place.read() for place in self.places]

    def differing(self, before: list[Any]) -> list[str]:
        """Describe the values that differ from ``before``, an earlier result of ``look()``."""
        then = zip(self.places, before, strict=True)
        return [place.what for place, value in then if not _alike(place.read(), value)]

    def changed(self) -> str:
        """Describe the values that changed."""
        return f"{', '.join(p.what for p in self.places if not p.holds())} changed"

    def forgive(self) -> list[str]:
        """Accept the changes; stop guarding values that changed too often, and return those."""
        tired = []
        for place in self.places:
            if not place.holds():
                place.recorded, place.changes = place.read(), place.changes + 1
                if place.changes > PATIENCE:
                    tired.append(place)
        self.places = [place for place in self.places if place not in tired]
        self.quick = self._compiled()
        return [place.what for place in tired]

    def _same(self) -> bool:
        return all(place.holds() for place in self.places)

    def _compiled(self) -> Callable[[], bool]:
        names = Names()
        checks = " and ".join(place.expression(names) for place in self.places) or "True"
        return eval(f"lambda: {checks}", names.space)

    # --- search ---

    def _find(self, function: Any, frames: Frames) -> Iterator[Place]:
        seen: set[Any] = set()
        while isinstance(function, functools.partial):
            yield from self._inside("an argument", function, seen, 0)
            function = function.func
        owner = getattr(function, "__self__", None)
        for value in (owner, *(reference() for reference in frames.given.values())):
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

    def _cell(self, name: str, cell: Any, seen: set[Any]) -> Iterator[Place]:
        value = _contents(cell)
        if value is not _MISSING and _matters(value):
            what = f"the variable {name!r}"
            yield Place(
                what, functools.partial(_contents, cell), lambda names: f"{names(cell)}.cell_contents"
            )
        yield from self._inside(name, value, seen, 0)

    def _item(self, what: str, owner: Any, key: str, seen: set[Any], depth: int) -> Iterator[Place]:
        """A key of a dictionary: of variables, or of attributes."""
        value = owner.get(key, _MISSING)
        if value is _MISSING:
            return
        if _matters(value):
            yield _entry(what, owner, key)
        yield from self._inside(key, value, seen, depth)

    def _inside(self, name: str, value: Any, seen: set[Any], depth: int) -> Iterator[Place]:
        """The members of a container, the mentioned attributes of anything else."""
        if depth > _DEPTH or id(value) in seen or is_plain(value) or isinstance(value, Value):
            return
        seen.add(id(value))
        if isinstance(value, np.ndarray):
            if value.size <= _NUMBERS:
                yield Place(f"a number in {name!r}", value.tobytes, None)
        elif isinstance(value, functools.partial):
            yield from self._inside(name, value.keywords, seen, depth + 1)
            yield from self._inside(name, value.args, seen, depth + 1)
        elif isinstance(value, _CONTAINERS):
            if not isinstance(value, tuple):
                yield Place(f"an item of {name!r}", functools.partial(_members, value), None)
            for each in _members(value):
                yield from self._inside(name, each, seen, depth + 1)
        elif isinstance(value, FunctionType | BuiltinFunctionType | MethodType):
            yield from self._inside(name, getattr(value, "__self__", None), seen, depth + 1)
        else:
            yield from self._attributes(name, value, seen, depth)

    def _attributes(self, name: str, value: Any, seen: set[Any], depth: int) -> Iterator[Place]:
        is_module = hasattr(type(value), "named_modules")
        if is_module:
            self.modules.append(value)
        kind = value if isinstance(value, type) else type(value)
        named = value.__name__ if isinstance(value, ModuleType) else f"{kind.__module__}.{kind.__qualname__}"
        if ours(named) and named not in _OPEN:
            return
        own = {} if isinstance(value, type) else getattr(value, "__dict__", {})
        for key in self._named(own):
            if is_module and (is_plain(own[key]) or key in _OF_MODULES):
                continue  # see ModulesGuard
            yield from self._item(f"the attribute {key!r} of {name!r}", own, key, seen, depth + 1)
        for each in () if isinstance(value, ModuleType) else kind.__mro__:
            if not ours(each.__module__):
                yield from self._of_class(name, value, own, each, seen, depth + 1)

    def _named(self, space: Any) -> list[str]:
        """The keys of ``space`` that the code names and whose values it may call or compute with."""
        return [key for key in space if key in self.mentioned and key not in _SILENT]

    def _of_class(
        self, name: str, value: Any, own: dict[str, Any], kind: type, seen: set[Any], depth: int
    ) -> Iterator[Place]:
        """What ``kind`` has for ``value``: numbers and containers, methods, slots."""
        space = vars(kind)
        for key in self._named(space):
            found, what = space[key], f"the attribute {key!r} of {name!r}"
            if type(found).__name__ == "member_descriptor" and not isinstance(value, type):
                yield Place(what, functools.partial(getattr, value, key, _MISSING), None)
                yield from self._inside(key, getattr(value, key, None), seen, depth)
            elif (is_plain(found) or isinstance(found, (*_CONTAINERS, *_METHODS))) and key not in own:
                if own and is_plain(found):
                    yield _entry(what, own, key)  # not there: the class's counts
                if (id(kind), key) not in seen:
                    seen.add((id(kind), key))
                    yield from self._item(what, space, key, seen, depth)


#: What classes have that no call reads: a program that is recorded makes no objects of the user anew.
_SILENT = frozenset({"__class__", "__dict__", "__doc__", "__init__", "__module__", "__qualname__"})
#: Classes of the standard library whose objects have attributes of the user.
_OPEN = frozenset({"types.SimpleNamespace", "argparse.Namespace"})
_CONTAINERS = (dict, list, tuple, set, deque)
_METHODS = (FunctionType, property, classmethod, staticmethod)
_OF_MODULES = frozenset({"_parameters", "_buffers", "_modules", "training"})


def _entry(what: str, owner: Any, key: str) -> Place:
    """The value of ``key`` in a dictionary."""
    read = functools.partial(owner.get, key, _MISSING)
    return Place(what, read, lambda names: f"{names(owner)}.get({key!r}, {names(_MISSING)})")


def _matters(value: Any) -> bool:
    """Whether exchanging ``value`` could change a program: not for imported modules and tenon's functions."""
    if isinstance(value, type | ModuleType):
        return False
    return not (isinstance(value, FunctionType | BuiltinFunctionType) and ours(value.__module__))


def _members(value: Any) -> tuple[Any, ...]:
    if len(value) > _MEMBERS:
        return (len(value),)
    return (*value, *value.values()) if isinstance(value, dict) else tuple(value)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return _MISSING


def _alike(now: Any, then: Any) -> bool:
    if now is then:
        return True
    if now.__class__ is tuple and then.__class__ is tuple:
        return len(now) == len(then) and all(map(_alike, now, then))
    return is_plain(now) and now.__class__ is then.__class__ and bool(now == then)
