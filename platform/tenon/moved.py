"""Modules under the paths that they had before: pickles of tensors, sizes and storages name these.

A pickle names the module of every class in it. ``tenon.core`` is now ``tenon.engine`` and ``tenon.tensors``;
what was pickled before loads because ``import tenon.core.size`` still gives ``tenon.tensors.size``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PACKAGE = "tenon.core"
#: Where its modules are now, under their names.
_PLACES = ("tenon.engine", "tenon.tensors", "tenon.tensors.creation", "tenon.utils")
_RENAMED = {
    "storage": "tenon.tensors.storage.untyped",
    "typed_storage": "tenon.tensors.storage.typed",
    "storage_moves": "tenon.tensors.storage.moves",
    "storage_sources": "tenon.tensors.storage.sources",
    "legacy_storages": "tenon.tensors.storage.legacy",
}


def _present(name: str) -> str | None:
    """The present path of ``name``, a module's path below ``tenon.core``."""
    from importlib.util import find_spec  # 5 ms, which every import of tenon would pay

    first, dot, rest = name.partition(".")
    if first in _RENAMED:
        return _RENAMED[first]
    candidates = (f"{place}.{first}" for place in _PLACES)
    place = next((path for path in candidates if find_spec(path) is not None), None)
    return None if place is None else f"{place}{dot}{rest}"


class _Loader:
    """Gives the module of another path."""

    def create_module(self, spec: ModuleSpec) -> None:
        """An ordinary module, replaced below."""

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ != _PACKAGE:
            path = _present(module.__name__.removeprefix(f"{_PACKAGE}."))
            assert path is not None  # the finder has looked
            sys.modules[module.__name__] = importlib.import_module(path)


class _Finder:
    """Finds the modules of ``tenon.core``, and nothing else."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == _PACKAGE or (
            name.startswith(f"{_PACKAGE}.") and _present(name.removeprefix(f"{_PACKAGE}.")) is not None
        ):
            loader: Any = _Loader()  # importlib.abc.Loader takes 5 ms to import
            return ModuleSpec(name, loader, is_package=name == _PACKAGE)
        return None


def install() -> None:
    """Let ``import`` find the former paths, first of all: others would load a nested module twice."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
