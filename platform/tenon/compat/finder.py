"""The import hook for module names of tenon that have no file.

``paths.MODULES`` maps a second name to a module, ``reexports.REEXPORTS`` a name to what its generated module
re-exports, and plugins declare namespaces (``tenon.plugins.namespaces``). A module is one object under all
its names, so a class stays one class, whichever path it is imported or unpickled by. The submodules of a
package with a second name have second names too.

The hook stands before the import system's own finders, which would load a file again under its second name.
Plugins are queried last, if no finder has the module. A module that does not belong to tenon costs
one comparison.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

from tenon.compat.paths import MODULES
from tenon.compat.reexports import REEXPORTS
from tenon.plugins import namespaces

__all__ = ["Finder", "install", "is_second_name", "second_names", "submodules"]


def is_second_name(fullname: str) -> bool:
    """Whether ``paths.py`` or ``reexports.py`` lists a module of this name."""
    return fullname in MODULES or fullname in REEXPORTS


def second_names(package: str) -> set[str]:
    """Return the names of the submodules that the tables list for ``package``."""
    split = (name.rpartition(".") for name in (*MODULES, *REEXPORTS))
    return {name for parent, _, name in split if parent == package}


def submodules(package: str) -> Callable[[str], ModuleType]:
    """Return a ``__getattr__`` for ``package`` that imports the submodules listed for it."""

    def lookup(name: str) -> ModuleType:
        if is_second_name(f"{package}.{name}"):
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return lookup


class Finder:
    """Finds modules of tenon whose names have no file; see the module's docstring."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module of tenon or of a plugin; None for modules of others."""
        if not fullname.startswith(("tenon.", "tenon_")):
            return None
        return (
            namespaces.public_spec(fullname)
            or _listed(fullname)
            or self._by_later_finders(fullname, path, target)
            or namespaces.plugin_spec(fullname)
        )

    def _by_later_finders(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        """Return the spec of the finders after this one, so that plugins only serve missing modules."""
        later = False
        for finder in sys.meta_path:
            if later and (spec := finder.find_spec(fullname, path, target)) is not None:
                return spec
            later = later or finder is self
        return None


def _listed(fullname: str) -> ModuleSpec | None:
    """Return the spec of a module that ``paths.py`` or ``reexports.py`` lists; else None."""
    if fullname in REEXPORTS:
        inner = any(name.startswith(f"{fullname}.") for name in (*REEXPORTS, *MODULES))
        return _spec(fullname, ReexportLoader(REEXPORTS[fullname]), [] if inner else None)
    if not fullname.startswith("tenon."):
        return None
    target = MODULES.get(fullname) or _by_package(fullname)
    if target is None:
        return None
    from importlib.util import find_spec  # 5 ms, which every import of tenon would pay

    spec = find_spec(target)
    if spec is None:
        return None
    return _spec(fullname, AliasLoader(target, spec), spec.submodule_search_locations)


def _by_package(fullname: str) -> str | None:
    """Return the module that ``fullname`` refers to if its parent package is an alias; else None."""
    package, _, name = fullname.rpartition(".")
    own = getattr(sys.modules.get(package), "__name__", package)
    return None if own == package else f"{own}.{name}"


# The loader is one of the classes below, which derive from no class of importlib.
def _spec(fullname: str, loader: Any, packages: Sequence[str] | None) -> ModuleSpec:
    spec = ModuleSpec(fullname, loader, origin=loader.origin, is_package=packages is not None)
    if packages:
        spec.submodule_search_locations = list(packages)
    return spec


def _member(module: ModuleType, name: str) -> object:
    """Return the object that ``from module import name`` binds."""
    try:
        return getattr(module, name)
    except AttributeError:
        return importlib.import_module(f"{module.__name__}.{name}")


class AliasLoader:
    """Loads an alias as the module it refers to; ``runpy``'s queries go to that module's own loader."""

    def __init__(self, target_name: str, spec: ModuleSpec) -> None:
        self.target_name, self.spec, self.origin = target_name, spec, spec.origin

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module that the alias refers to."""
        module = importlib.import_module(self.target_name)
        if module.__spec__ is not None:
            self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own ``__spec__``, which the import system has replaced; run nothing again."""
        module.__spec__ = self.spec

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the module's code, for ``python -m``."""
        loader: Any = self.spec.loader  # has what InspectLoader has, whatever its class
        code: CodeType | None = loader.get_code(self.target_name)
        return code

    def get_source(self, fullname: str) -> str | None:
        """Return the module's source text, if it has one."""
        loader: Any = self.spec.loader  # has what InspectLoader has, whatever its class
        source: str | None = loader.get_source(self.target_name)
        return source


class ReexportLoader:
    """Generates a module that re-exports names of others: ``"package.module: name, another as name"``."""

    origin = "tenon.compat.reexports"

    def __init__(self, rows: Sequence[str]) -> None:
        self.rows = rows

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None: the import system creates an empty module."""

    def exec_module(self, module: ModuleType) -> None:
        """Import the names in the rows and bind them."""
        names = []
        for row in self.rows:
            source_name, _, listed = row.partition(":")
            source = importlib.import_module(source_name)
            for entry in listed.split(","):
                original, _, name = entry.strip().partition(" as ")
                setattr(module, name or original, _member(source, original))
                names.append(name or original)
        module.__doc__ = (
            f"The names of PyTorch's ``{module.__name__}``, which are defined elsewhere in tenon."
        )
        module.__dict__["__all__"] = sorted(names)

    def get_code(self, fullname: str) -> None:
        """Return None: there is no code to run."""

    def get_source(self, fullname: str) -> None:
        """Return None: the module has no file."""


def install() -> None:
    """Install the hook before the import system's own finders, unless it is installed."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
