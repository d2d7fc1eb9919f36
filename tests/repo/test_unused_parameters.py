"""Public parameters without effect are documented as such."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "platform/tenon/nn",
    "platform/tenon/optim",
    "platform/tenon/distributed",
    "plugins/tenon_optimizers",
)


def public_functions(tree):
    """``(name, function, documentation)`` of public functions, and of classes with their ``__init__``."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name, node, ast.get_docstring(node) or ""
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                    said = f"{ast.get_docstring(node)}\n\n{ast.get_docstring(inner)}"
                    yield node.name, inner, said


def unused(function):
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if not body or isinstance(body[0], ast.Raise) or ast.unparse(body[0]) in ("...", "pass"):
        return []  # a protocol, or a refusal
    used = {n.id for statement in function.body for n in ast.walk(statement) if isinstance(n, ast.Name)}
    given = function.args
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return [n for n in names if n not in used and n != "self" and not n.startswith("_")]


def said_without_effect(documentation):
    """The parameters that sentences with "no effect" name."""
    sentences = re.split(r"(?<=[.;])\s|\n\n", documentation)
    return {name for s in sentences if "no effect" in s for name in re.findall(r"``(\w+)``", s)}


def ignored_in_silence(source):
    return [
        f"{name}({parameter})"
        for name, function, documentation in public_functions(ast.parse(source))
        for parameter in unused(function)
        if parameter not in said_without_effect(documentation)
    ]


@pytest.mark.slow
def test_parameters_without_effect_are_documented():
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    found = {str(path.relative_to(ROOT)): ignored_in_silence(path.read_text()) for path in files}

    assert len(files) > 100
    assert {path: names for path, names in found.items() if names} == {}


def test_a_parameter_ignored_in_silence_is_found():
    silent = 'def f(x, how=None):\n    """Twice ``x``."""\n    return x + x\n'
    said = 'def f(x, how=None):\n    """Twice ``x``. ``how`` has no effect."""\n    return x + x\n'

    assert ignored_in_silence(silent) == ["f(how)"]
    assert ignored_in_silence(said) == []
