"""The functions of ``templates/`` as text, with their dependencies."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent / "templates"
#: The file into which every runner is generated.
FRAME = "runner.py"


@dataclass(frozen=True, slots=True)
class Definition:
    """A function, a class or a constant of a template."""

    name: str
    text: str
    #: Names of other definitions that it uses.
    uses: frozenset[str]
    #: Names of its parameters; empty for a class or constant.
    parameters: tuple[str, ...]
    #: The parameters that have a default.
    defaults: Mapping[str, object]
    #: ``import`` lines that it needs.
    imports: frozenset[str]


@functools.cache
def definitions() -> Mapping[str, Definition]:
    """Return all definitions of the families by name, each after those that it uses."""
    result: dict[str, Definition] = {}
    for path in sorted(_FOLDER.glob("*.py")):
        if path.name not in ("__init__.py", FRAME):
            result |= read_definitions(path)
    return result


def functions() -> frozenset[str]:
    """Return the names of all functions."""
    return frozenset(name for name, definition in definitions().items() if definition.parameters)


def attributes(name: str, attrs: Mapping[str, object]) -> dict[str, object]:
    """Return those of ``attrs`` that are parameters of a function, unless they equal the defaults."""
    definition = definitions()[name]
    missing = object()
    return {
        key: value
        for key, value in attrs.items()
        if key in definition.parameters and repr(definition.defaults.get(key, missing)) != repr(value)
    }


@functools.cache
def frame() -> Mapping[str, Definition]:
    """Return the definitions of the frame."""
    return read_definitions(_FOLDER / FRAME)


def read_definitions(path: Path) -> dict[str, Definition]:
    """Return the definitions in a file, with the comments above them."""
    source = path.read_text("utf-8")
    lines = source.splitlines()
    tree = ast.parse(source)
    imports: dict[str, str] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom) and not _is_own(statement):
            for alias in statement.names:
                imports[(alias.asname or alias.name).split(".")[0]] = _import_line(statement, alias)
    result = {}
    for statement in tree.body:
        name = _defined_name(statement)
        if name is None:
            continue
        first = statement.lineno
        while first > 1 and lines[first - 2].startswith("#"):
            first -= 1
        last = statement.end_lineno or first
        while last < len(lines) and lines[last].startswith((")  # fmt", "}  # fmt")):
            last += 1
        used = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}
        arguments = statement.args.args if isinstance(statement, ast.FunctionDef) else []
        given = statement.args.defaults if isinstance(statement, ast.FunctionDef) else []
        defaults = {a.arg: _value(d) for a, d in zip(reversed(arguments), reversed(given), strict=False)}
        result[name] = Definition(
            name,
            "\n".join(lines[first - 1 : last]).replace("  # fmt: skip", ""),
            frozenset(used - {name}),
            tuple(a.arg for a in arguments),
            defaults,
            frozenset(imports[u] for u in used if u in imports),
        )
    return result


def _value(default: ast.expr) -> object:
    """Return a default that is a plain value, else an object that equals no value."""
    try:
        return ast.literal_eval(default)
    except ValueError:
        return object()


def _is_own(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith(
        ("tenon", "__future__")
    )


def _import_line(statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    name = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
    return (
        f"from {statement.module} import {name}"
        if isinstance(statement, ast.ImportFrom)
        else f"import {name}"
    )


def _defined_name(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return statement.name
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id
    return None


def needed(names: Iterable[str]) -> list[Definition]:
    """Return the definitions of ``names`` and all that they use, each after those that it uses."""
    known = definitions()
    result: dict[str, Definition] = {}

    def add(name: str) -> None:
        if name in result or name not in known:
            return
        for used in sorted(known[name].uses):
            add(used)
        result[name] = known[name]

    for name in sorted(names):
        add(name)
    return list(result.values())
