"""Write stubs of module names without a file, for type checkers.

Type checkers read files, so they miss what ``finder.py`` finds at run time: the second names in ``paths.py``,
the modules in ``reexports.py``, and the namespaces of plugins that ship with tenon. Each gets a stub that
imports the names from where they are defined. ``plugins/stubs.py`` states where stubs are written, and why.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from tenon.compat.paths import FORMER, MODULES
from tenon.compat.reexports import REEXPORTS
from tenon.plugins.components import Registry
from tenon.plugins.stubs import HEADER, STUB_PACKAGE
from tenon.plugins.stubs import stubs as module_stubs

__all__ = ["STUB_PACKAGE", "alias_stubs", "expected_stubs"]


def expected_stubs(
    registry: Registry, folder: Path = STUB_PACKAGE, *, third_party: bool = False
) -> dict[Path, str]:
    """Map the path in ``folder`` of every stub to the text that it should have."""
    modules = module_stubs(registry, folder=folder, third_party=third_party)
    return {**modules, **alias_stubs(registry, folder, third_party=third_party)}


def alias_stubs(registry: Registry, folder: Path, *, third_party: bool = False) -> dict[Path, str]:
    """Map the path in ``folder`` of the stub of each module name without a file to its text.

    ``third_party`` adds the namespaces of other plugins.
    """
    bodies: dict[str, list[str]] = {}
    for name, rows in REEXPORTS.items():
        bodies[name] = list(_imports_of_rows(rows))
    for name, target in MODULES.items():
        if name in FORMER:
            continue
        for below, present in _with_submodules(name, target):
            bodies.setdefault(below, _imports_of_module(present))
    for component in registry.components("namespaces"):
        if component.plugin.first_party or third_party:
            module = importlib.import_module(f"tenon.{component.name}")
            for name, present in _with_plugin_modules(f"tenon.{component.name}", module):
                bodies.setdefault(name, _imports_of_module(present))
    packages = {name.rpartition(".")[0] for name in bodies}
    texts = {folder / "py.typed": "partial\n"}
    for name, lines in bodies.items():
        path = folder.joinpath(*name.split(".")[1:])
        path = path / "__init__.pyi" if name in packages else path.with_name(f"{path.name}.pyi")
        texts[path] = "\n".join([*HEADER, "", *lines]) + "\n"
    return texts


def _imports_of_rows(rows: tuple[str, ...]) -> Iterator[str]:
    """Yield the imports of rows of ``reexports.py``, one per name."""
    for row in rows:
        source, _, listed = row.partition(":")
        for entry in listed.split(","):
            name, _, public = entry.strip().partition(" as ")
            yield f"from {source} import {name} as {public or name}"


def _imports_of_module(target: str) -> list[str]:
    """Return the imports that give a stub the names of the module ``target``.

    Modules of ``compat`` serve code that uses PyTorch's private names, so their stubs name those too.
    """
    if target in REEXPORTS:
        return list(_imports_of_rows(REEXPORTS[target]))
    lines = [f"from {target} import *"]
    if target.startswith("tenon.compat."):
        names = sorted(_outside_of_star(_tree(target)))
        lines += [f"from {target} import {name} as {name}" for name in names]
    return lines


def _tree(module: str) -> ast.Module:
    """Return the syntax tree of the file of ``module``."""
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None, module
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def _imported(tree: ast.Module) -> set[str]:
    """Return the names that ``from`` imports bind at the top level of a module."""
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def _outside_of_star(tree: ast.Module) -> set[str]:
    """Return the names that a module defines and ``from module import *`` leaves out."""
    names = _defined(tree) - {"__all__", "__dir__"}
    exported = _exported(tree)
    return {n for n in names if n.startswith("_")} if exported is None else names - exported


def _defined(tree: ast.Module) -> set[str]:
    """Return the names of functions, classes and variables that a module defines at its top level."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {each.id for t in targets for each in ast.walk(t) if isinstance(each, ast.Name)}
    return names


def _exported(tree: ast.Module) -> set[str] | None:
    """Return the names in a literal ``__all__``; None without one."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and "__all__" in _defined(ast.Module([node], [])):
            return {
                c.value
                for c in ast.walk(node.value)
                if isinstance(c, ast.Constant) and isinstance(c.value, str)
            }
    return None


def _with_submodules(name: str, target: str) -> Iterator[tuple[str, str]]:
    """Yield ``(second name, module)`` of ``target`` and of all modules below it, with files or without."""
    yield name, target
    rows = {row for row in (*REEXPORTS, *MODULES) if row.startswith(f"{target}.") and row not in FORMER}
    spec = None if target in REEXPORTS else find_spec(target)
    files = () if spec is None else _modules_below(target, spec)
    for module in sorted({*files, *rows}):
        yield name + module.removeprefix(target), MODULES.get(module, module)


def _modules_below(package: str, spec: ModuleSpec) -> Iterator[str]:
    """Yield the names of the modules with files below ``package``."""
    for folder in spec.submodule_search_locations or ():
        for path in sorted(Path(folder).rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            module = ".".join([package, *(parts[:-1] if parts[-1] == "__init__" else parts)])
            if module != package:
                yield module


def _with_plugin_modules(name: str, module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield ``(public name, own name)`` of a plugin's module and of those that are imported below it."""
    assert module.__spec__ is not None
    own = module.__spec__.name
    yield name, own
    if not hasattr(module, "__path__"):
        return
    children = {info.name for info in pkgutil.iter_modules(module.__path__)}
    children |= {name for name in _imported(_tree(own)) if _belongs(vars(module).get(name), own)}
    for child in sorted(children):
        yield from _with_plugin_modules(f"{name}.{child}", importlib.import_module(f"{name}.{child}"))


def _belongs(value: object, module: str) -> bool:
    """Whether ``value`` is a module of the plugin that ``module`` belongs to."""
    top = module.partition(".")[0]
    return (
        isinstance(value, ModuleType)
        and value.__spec__ is not None
        and value.__spec__.name.startswith(f"{top}.")
    )
