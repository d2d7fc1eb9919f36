"""The three registries of a Module: dicts that write through to its attributes.

``module._parameters``, ``_buffers`` and ``_modules`` are real dicts, so iterating, copying and
``in`` run at C speed and third-party code that edits them keeps working. Each change is mirrored into
the module's ``__dict__``; reading ``module.weight`` is therefore one dict lookup instead of a failed
attribute lookup, a Python call to ``__getattr__`` and up to three dict lookups.

The mirror is only a cache: ``Module.__getattr__`` also finds entries that are not mirrored. These are entries
hidden by a plain attribute, and those of classes with their own ``__getattr__``, which may need to intercept
every read.

The reference to the module is weak: a strong one would form a cycle, and large models would stay in memory
until the garbage collector runs.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from tenon.engine.types import Forwarded
from tenon.tensors.generation import Generation

if TYPE_CHECKING:
    from tenon.nn.module import Module

V = TypeVar("V")
_ABSENT = object()

NAMES = ("_parameters", "_buffers", "_modules")


class Registry(dict[str, V]):
    """Named members of the module that ``bind`` was called with."""

    __slots__ = ("__weakref__", "_owner")
    tracks_structure: ClassVar[bool] = False

    def __init__(self, *args: Forwarded, **kwargs: Forwarded) -> None:
        super().__init__(*args, **kwargs)
        self._owner: weakref.ref[Module] | None = None

    @property
    def owner(self) -> Module | None:
        """The owning module, or None."""
        return None if self._owner is None else self._owner()

    def bind(self, module: Module) -> None:
        """Mirror all entries into ``module`` from now on."""
        self._owner = weakref.ref(module)
        if module._mirrors:
            attributes = module.__dict__
            for name, value in self.items():
                attributes.setdefault(name, value)
        self._invalidate()

    def release(self) -> None:
        """Remove the mirrored entries from the module, and the reference to it."""
        owner = self.owner
        self._owner = None
        if owner is not None:
            for name, value in self.items():
                _unmirror(owner, name, value)

    def _invalidate(self) -> None:
        """Invalidate caches that depend on the members."""
        Generation.attributes += 1
        if self.tracks_structure:
            Generation.structure += 1

    def __setitem__(self, name: str, value: V) -> None:
        old = self.get(name, _ABSENT)
        super().__setitem__(name, value)
        owner = self._owner() if self._owner is not None else None
        if owner is not None and owner._mirrors:
            attributes = owner.__dict__
            if attributes.get(name, _ABSENT) is old:
                attributes[name] = value
            else:
                _remirror(owner, name)
        self._invalidate()

    def __delitem__(self, name: str) -> None:
        value = self[name]
        super().__delitem__(name)
        owner = self.owner
        if owner is not None:
            _unmirror(owner, name, value)
        self._invalidate()

    def pop(self, name: str, *default: Any) -> Any:  # a default may be of any type
        """Remove ``name`` and return its value, or the default."""
        if name not in self:
            return super().pop(name, *default)
        value = self[name]
        del self[name]
        return value

    def popitem(self) -> tuple[str, V]:
        """Remove and return the last entry."""
        if not self:
            return super().popitem()
        name = next(reversed(self))
        return name, self.pop(name)

    def clear(self) -> None:
        """Remove every entry."""
        for name in list(self):
            del self[name]

    def update(self, *args: Forwarded, **kwargs: Forwarded) -> None:
        """Set the entries of a mapping, of pairs, or of keywords."""
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> V:  # dict refuses None here for most V
        """Return the entry ``name``, set to ``default`` if it is missing."""
        if name not in self:
            self[name] = default
        return self[name]

    def __ior__(self, other: Any) -> Self:  # type: ignore[override,misc]
        self.update(other)
        return self

    def __reduce__(self) -> tuple[object, ...]:
        items: Iterator[tuple[str, V]] = iter(list(self.items()))
        return (type(self), (), None, None, items)

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        return self.__reduce__()


class ModuleRegistry(Registry[V]):
    """Registry of children; changes invalidate cached module paths."""

    __slots__ = ()
    tracks_structure = True


# The members of each kind have their own type.
KINDS: dict[str, type[Registry[Any]]] = {
    "_parameters": Registry,
    "_buffers": Registry,
    "_modules": ModuleRegistry,
}


def _unmirror(owner: Module, name: str, value: object) -> None:
    """Remove the mirrored ``value``; mirror the entry of another registry of the same name, if any."""
    attributes = owner.__dict__
    if attributes.get(name, _ABSENT) is value:
        del attributes[name]
        _remirror(owner, name)


def _remirror(owner: Module, name: str) -> None:
    """If several registries have ``name``, mirror the entry that takes precedence in PyTorch.

    An attribute set without a registry (by ``__dict__``) hides the entry, as in PyTorch.
    """
    attributes = owner.__dict__
    if not owner._mirrors:
        return
    entries = [attributes[registry][name] for registry in NAMES if name in attributes.get(registry, ())]
    mirror = attributes.get(name, _ABSENT)
    if entries and (mirror is _ABSENT or any(mirror is value for value in entries)):
        attributes[name] = entries[0]


# ``module`` has the mixin Registration, whose module imports this one; members differ by kind.
def set_registry(module: Any, name: str, value: dict[str, Any]) -> None:
    """Set the registry ``name`` of ``module`` to ``value``, as for ``module._modules = {...}``.

    A registry that belongs to another living module is copied, so that a shallow copy of a module
    has its own members and never writes into the original.
    """
    attributes = module.__dict__
    current = attributes.get(name)
    bound = isinstance(current, Registry) and current.owner is module
    if bound and current is value:
        return
    kind = KINDS[name]
    fresh = value if type(value) is kind and value.owner is None else kind(value)
    attributes[name] = fresh
    if bound:
        current.release()
    fresh.bind(module)
