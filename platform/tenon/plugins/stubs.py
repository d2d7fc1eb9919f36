"""Write a ``.pyi`` file for each module whose names come from plugins, for editors and type checkers.

A stub repeats what the module itself imports and defines, and adds one import per name that a first-party
plugin declares. Those stubs are checked in. `tenon stubs --all` writes others, for the environment that it
runs in, with the names of all installed plugins.

All stubs are in the package ``tenon-stubs`` beside ``tenon``, where wheels and editable installs have it on
the path. It is partial (PEP 561): checkers read every module that it lacks from tenon's sources. Pyright
ignores ``.pyi`` files next to the sources of a package that has a stub package. Next: ``compat/stubs.py``.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from tenon.errors import PluginError
from tenon.plugins.components import Component, Registry

HEADER = ("# Written by `tenon stubs`; do not edit.", "# ruff: noqa: E501, I001, RUF100", "# fmt: off")
PACKAGE = Path(__file__).resolve().parent.parent
STUB_PACKAGE = PACKAGE.parent / "tenon-stubs"


def stubs(
    registry: Registry, package: Path = PACKAGE, folder: Path = STUB_PACKAGE, *, third_party: bool = False
) -> dict[Path, str]:
    """Map the path in ``folder`` of each stub of a module in ``package`` to the text that it should have.

    ``third_party`` adds the names of other plugins, except those that two of them declare.
    """
    texts = {}
    for source in sorted(package.rglob("*.py")):
        text = source.read_text(encoding="utf-8")
        if "lazy_namespace(__name__" in text:
            tree = ast.parse(text)
            kind, only = _served(tree)
            if kind is not None:
                named = [one for one in registry.components(kind) if only is None or one.name in only]
                found = {one.name: one for one in named if one.plugin.first_party}
                if third_party:
                    found.update((one.name, one) for one in importable(named) if one.name not in found)
                texts[folder / source.relative_to(package).with_suffix(".pyi")] = _stub(tree, found.values())
    return texts


def importable(components: Iterable[Component]) -> list[Component]:
    """Those of third-party ``components`` that a stub can import, and whose name no other one has."""
    others = [one for one in components if not one.plugin.first_party]
    times = Counter(one.name for one in others)
    return [
        one
        for one in others
        if times[one.name] == 1 and one.name.isidentifier() and _attribute(one).isidentifier()
    ]


def _attribute(component: Component) -> str:
    """The attribute in the target of ``component``; empty if it is an object, or a module."""
    return component.target.partition(":")[2] if isinstance(component.target, str) else ""


def _served(tree: ast.Module) -> tuple[str | None, Collection[str] | None]:
    """``kind`` and ``only`` of the module's own ``lazy_namespace(__name__, kind="...")`` call."""
    for node in tree.body:
        call = node.value if isinstance(node, ast.Assign) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        if call.func.id == "lazy_namespace":
            values = [*call.args[1:], *(word.value for word in call.keywords if word.arg == "kind")]
            if values and isinstance(values[0], ast.Constant) and isinstance(values[0].value, str):
                only = [word.value for word in call.keywords if word.arg == "only"]
                return values[0].value, ast.literal_eval(only[0]) if only else None
    return None, None


def _stub(tree: ast.Module, components: Iterable[Component]) -> str:
    imports: list[str] = []
    rest: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            imports += _explicit(node)
        elif isinstance(node, ast.Import):
            imports.append(ast.unparse(node))
        elif isinstance(node, ast.ClassDef) or (isinstance(node, ast.Assign) and _is_all(node)):
            rest.append(ast.unparse(node))
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            node.body = [ast.Expr(ast.Constant(...))]
            rest.append(ast.unparse(node))
        elif isinstance(node, ast.AnnAssign):
            node.value = None
            rest.append(ast.unparse(node))
    imports += [_import_of(component) for component in components]
    return "\n".join([*HEADER, "", *sorted(set(imports)), *rest]) + "\n"


def _explicit(node: ast.ImportFrom) -> Iterator[str]:
    """One ``from m import name as name`` per name, which marks it as public in a stub."""
    if node.module in {"__future__", "tenon.plugins.lazy"}:
        return
    for alias in node.names:
        yield f"from {node.module} import {alias.name} as {alias.asname or alias.name}"


def _is_all(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)


def _import_of(component: Component) -> str:
    module, _, attribute = str(component.target).partition(":")
    if not attribute.isidentifier():
        raise PluginError(
            f"{component.name!r} of plugin {component.plugin} has the target {component.target!r}, "
            "which a stub cannot import. Declare first-party names with targets 'package.module:attribute'."
        )
    return f"from {module} import {attribute} as {component.name}"
