"""Containers of modules: ``Sequential``, ``ModuleList``, ``ModuleDict``.

Each is a list or dict whose elements are registered as children, so that their parameters are traversed,
moved and saved.
"""

from __future__ import annotations

import operator
import warnings
from collections import OrderedDict
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from itertools import chain, islice
from typing import Any, Self, SupportsIndex, overload

from tenon.engine.types import Nested
from tenon.errors import ModuleTypeError, ModuleValueError
from tenon.nn.module import Module, indent


def position(index: SupportsIndex, size: int) -> int:
    """Return ``index`` normalised to ``[0, size)``; IndexError if it is out of range."""
    number = operator.index(index)
    if not -size <= number < size:
        raise IndexError(f"index {number} is out of range")
    return number % size


class Container(Module):
    """Deprecated: a module with children from keyword arguments; use ``Module``."""

    def __init__(self, **kwargs: Module) -> None:
        warnings.warn(
            "`nn.Container` is deprecated. All of its functionality is now implemented in `nn.Module`. "
            "Subclass that instead.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__()
        for name, module in kwargs.items():
            self.add_module(name, module)


class _Numbered(Module):
    """Base class of Sequential and ModuleList: children named ``"0"``, ``"1"``, ... in order."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __delitem__(self, index: int | slice) -> None:
        names = list(self._modules)
        for name in names[index] if isinstance(index, slice) else [names[position(index, len(names))]]:
            delattr(self, name)
        self._renumber()

    def _renumber(self) -> None:
        self._modules = {str(i): module for i, module in enumerate(self._modules.values())}

    def append(self, module: Module) -> Self:
        """Add ``module`` at the end; return the container."""
        self.add_module(str(len(self)), module)
        return self

    def pop(self, key: int | slice) -> Module:
        """Remove and return the element or elements at ``key``."""
        removed = self[key]
        del self[key]
        return removed

    def _insert_at(self, index: int, module: Module) -> None:
        """Shift the children from position ``index`` on by one, and insert ``module`` there."""
        for i in range(len(self._modules), index, -1):
            self._modules[str(i)] = self._modules[str(i - 1)]
        self._modules[str(index)] = module

    def _name_at(self, index: SupportsIndex) -> str:
        """Return the name of the child at position ``index``."""
        return str(position(index, len(self)))

    def _slice(self, which: slice) -> Self:
        """Return a container of the children ``which``, renumbered from 0."""
        return type(self)(list(self._modules.values())[which])

    @overload
    def __getitem__(self, idx: slice) -> Self: ...
    @overload
    def __getitem__(self, idx: int) -> Module: ...
    def __getitem__(self, idx: int | slice) -> Module:
        return self._slice(idx) if isinstance(idx, slice) else self._modules[self._name_at(idx)]

    def __setitem__(self, idx: int, module: Module) -> None:
        setattr(self, self._name_at(idx), module)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]


class Sequential(_Numbered):
    """Chain of modules: each is called with the output of the previous one.

    Takes modules, or one OrderedDict that names them.
    """

    def __init__(self, *args: Any) -> None:  # modules, or one OrderedDict; add_module checks
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for index, module in enumerate(args):
                self.add_module(str(index), module)

    def forward(self, input: Nested) -> Nested:
        """Return the output of the last module."""
        for module in self._modules.values():
            input = module(input)
        return input

    def _name_at(self, index: SupportsIndex) -> str:
        return next(islice(self._modules, position(index, len(self)), None))

    def _slice(self, which: slice) -> Self:
        """Return a container of the children ``which``, with their names."""
        return type(self)(OrderedDict(list(self._modules.items())[which]))

    def insert(self, index: int, module: Module) -> Self:
        """Put ``module`` before position ``index``; return the container."""
        if not isinstance(module, Module):
            raise _not_a_module(module)
        size = len(self._modules)
        if not -size <= index <= size:
            raise IndexError(f"Index out of range: {index}")
        self._insert_at(index + size if index < 0 else index, module)
        return self

    def extend(self, sequential: Iterable[Module]) -> Self:
        """Add every module of an iterable at the end; return the container."""
        for module in sequential:
            self.append(module)
        return self

    def __add__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            raise _not_sequential(other)
        return Sequential().extend(self).extend(other)

    def __iadd__(self, other: Sequential) -> Self:
        if not isinstance(other, Sequential):
            raise _not_sequential(other)
        return self.extend(list(other))

    def __mul__(self, other: int) -> Sequential:
        self._check_factor(other)
        return Sequential().extend(module for _ in range(other) for module in self)

    def __rmul__(self, other: int) -> Sequential:
        return self * other

    def __imul__(self, other: int) -> Self:
        self._check_factor(other)
        modules = list(self)
        return self.extend(module for _ in range(other - 1) for module in modules)

    def _check_factor(self, other: int) -> None:
        """Raise ModuleTypeError or ModuleValueError unless ``other`` is a positive integer."""
        if not isinstance(other, int):
            raise ModuleTypeError(f"unsupported operand type(s) for *: {type(self)} and {type(other)}")
        if other <= 0:
            raise ModuleValueError(f"Non-positive multiplication factor {other} for {type(self)}")


class _InsertTypeError(ModuleTypeError, AssertionError):
    """Also an AssertionError, which PyTorch raises here."""


def _not_a_module(value: object) -> Exception:
    return _InsertTypeError(f"module should be of type: {Module}, got {type(value)}")


def _not_sequential(value: object) -> Exception:
    return ModuleValueError(
        f"add operator supports only objects of Sequential class, but {type(value)} is given."
    )


class ModuleList(_Numbered):
    """A list of modules, whose elements the owning module calls; the list itself is not callable."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def insert(self, index: int, module: Module) -> None:
        """Put ``module`` before position ``index``."""
        if not isinstance(module, Module):
            raise _not_a_module(module)
        size = len(self._modules)
        self._insert_at(min(index, size) if index >= 0 else max(index + size, 0), module)

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add every module of an iterable at the end; return the list."""
        if not isinstance(modules, Iterable):
            raise ModuleTypeError(
                f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}"
            )
        offset = len(self)
        for i, module in enumerate(list(modules)):
            self.add_module(str(offset + i), module)
        return self

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList(chain(self, other))

    def __repr__(self) -> str:
        """Return the module's repr with equal neighbours merged: ``(0-2): 3 x Linear(...)``."""
        runs: list[tuple[int, str]] = []  # length and text
        for text in map(repr, self):
            if runs and runs[-1][1] == text:
                runs[-1] = (runs[-1][0] + 1, text)
            else:
                runs.append((1, text))
        if not runs:
            return f"{self._get_name()}()"
        lines = []
        start = 0
        for length, text in runs:
            label = f"({start}): " if length == 1 else f"({start}-{start + length - 1}): {length} x "
            lines.append(indent(label + text, 2))
            start += length
        joined = "\n  ".join(lines)
        return f"{self._get_name()}(\n  {joined}\n)"


class ModuleDict(Module):
    """A dict of modules, in order of insertion."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Remove all modules."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Remove and return the module ``key``."""
        module: Module = self[key]
        del self[key]
        return module

    def keys(self) -> KeysView[str]:
        """The names."""
        return self._modules.keys()

    def items(self) -> ItemsView[str, Module]:
        """Names and modules."""
        return self._modules.items()

    def values(self) -> ValuesView[Module]:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Mapping[str, Module] | ModuleDict | Iterable[tuple[str, Module]]) -> None:
        """Set the modules of a mapping, another ModuleDict, or an iterable of pairs."""
        for key, module in pairs("ModuleDict", modules):
            self[key] = module


def pairs(kind: str, values: object) -> Iterable[tuple[Any, Any]]:  # the container checks both
    """Return the ``(key, value)`` pairs of a mapping, or of an iterable of pairs after validation."""
    if isinstance(values, (Mapping, Module)) and hasattr(values, "items"):
        return list(values.items())
    if not isinstance(values, Iterable):
        raise ModuleTypeError(
            f"{kind}.update should be called with an iterable of key/value pairs, but got "
            f"{type(values).__name__}"
        )
    result = []
    for number, pair in enumerate(values):
        if not isinstance(pair, Iterable):
            raise ModuleTypeError(
                f"{kind} update sequence element #{number} should be Iterable; is {type(pair).__name__}"
            )
        items = tuple(pair)
        if len(items) != 2:
            raise ModuleValueError(
                f"{kind} update sequence element #{number} has length {len(items)}; 2 is required"
            )
        result.append(items)
    return result


__all__ = ["Container", "ModuleDict", "ModuleList", "Sequential"]
