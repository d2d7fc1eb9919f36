"""Write the reference: a Markdown page for each public module, out of signatures and docstrings.

    python docs/build_reference.py OUT

Nothing that it writes is checked in: the docstrings are the source. ``tests/repo/test_reference.py`` builds
it, and fails on a public name without a docstring.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tenon.engine.op import Composite, Op

PAGES = (
    "tenon",
    "tenon.nn",
    "tenon.nn.functional",
    "tenon.nn.init",
    "tenon.nn.utils",
    "tenon.optim",
    "tenon.optim.lr_scheduler",
    "tenon.autograd",
    "tenon.data",
    "tenon.distributions",
    "tenon.distributed",
    "tenon.serialize",
    "tenon.serialize.checkpoint",
    "tenon.random",
    "tenon.ops",
    "tenon.errors",
    "tenon.extend",
    "tenon.testing",
)


def main(out: Path) -> None:
    """Write all pages and their index into ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in PAGES:
        module = importlib.import_module(name)
        text = page(name)
        (out / f"{name}.md").write_text(text, encoding="utf-8")
        rows.append(f"| [{name}]({name}.md) | {first_line(module)} |")
    index = [
        "# Reference",
        "",
        "Built from docstrings by `docs/build_reference.py`.",
        "",
        "| module | |",
        "|---|---|",
    ]
    (out / "README.md").write_text("\n".join([*index, *rows]) + "\n", encoding="utf-8")


def page(name: str) -> str:
    """The page of the module ``name``."""
    module = importlib.import_module(name)
    parts = [f"# {name}", documentation(module)]
    values = []
    for public, thing in sorted(public_names(module).items()):
        if is_value(thing):
            shown = repr(thing) if not repr(thing).startswith("<") else f"a {type(thing).__name__}"
            values.append(f"- `{public}`: `{shown}`")
            continue
        parts.append(f"## {public}")
        parts.append(f"```python\n{public}{signature(thing)}\n```")
        parts.append(documentation(thing))
        if isinstance(thing, type):
            parts += members(thing)
    if values:
        parts.append("## Values")
        parts.append("\n".join(values))
    return "\n\n".join(part for part in parts if part) + "\n"


def public_names(module: types.ModuleType) -> dict[str, Any]:
    """What a module offers: its ``__all__``, or what ``dir`` lists and tenon or a plugin defines."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        found = {name: getattr(module, name) for name in listed}
    else:
        names = [name for name in dir(module) if not name.startswith("_")]
        found = {name: thing for name in names if belongs(thing := getattr(module, name))}
    return {name: thing for name, thing in found.items() if not isinstance(thing, types.ModuleType)}


def belongs(thing: Any) -> bool:
    """Whether ``dir`` shows ``thing`` on purpose, and not because the module imports it for its own use."""
    home = getattr(thing, "__module__", None) or ""
    if isinstance(thing, type) or inspect.isroutine(thing):
        return home.partition(".")[0].startswith("tenon") and not home.startswith("tenon.plugins")
    return not isinstance(thing, bool) and home not in ("__future__", "typing")


def is_value(thing: Any) -> bool:
    """Constants, dtypes and aliases: what has a value to show instead of a docstring of its own."""
    return not (isinstance(thing, (type, Op)) or callable(thing)) or isinstance(thing, types.GenericAlias)


def members(cls: type) -> Iterator[str]:
    """Public methods and properties that ``cls`` itself, or an internal base of it, defines."""
    for name, thing in sorted(inspect.getmembers_static(cls)):
        if name.startswith("_") or not defined_here(cls, name):
            continue
        if isinstance(thing, property):
            yield f"### {cls.__name__}.{name}"
        elif callable(thing) or isinstance(thing, (classmethod, staticmethod)):
            yield f"### {cls.__name__}.{name}{signature(getattr(cls, name))}"
        else:
            continue
        yield documentation(getattr(cls, name))


def defined_here(cls: type, name: str) -> bool:
    """Whether the page of ``cls`` shows ``name``: not what it takes from Module, Optimizer or Python."""
    owner = next(base for base in cls.__mro__ if name in vars(base))
    if owner is cls:
        return True
    return owner.__module__.startswith(("tenon.tensors.methods", "tenon.nn")) and cls.__name__ in (
        "Tensor",
        "Module",
    )


def signature(thing: Any) -> str:
    """``(x, y, *, axis)``, without annotations that say nothing; empty where Python knows none."""
    if isinstance(thing, Op):
        states_attrs = inspect.signature(thing.decompose if isinstance(thing, Composite) else thing.infer)
        attrs = [p.name for p in states_attrs.parameters.values() if p.kind is p.KEYWORD_ONLY]
        return f"({', '.join([*thing.inputs, *(['*', *attrs] if attrs else [])])})"
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    plain = [
        p.replace(annotation=p.empty) if p.annotation in ("Any", Any) else p
        for p in found.parameters.values()
    ]
    returns = found.empty if found.return_annotation in ("Any", Any) else found.return_annotation
    text = str(found.replace(parameters=plain, return_annotation=returns))
    return re.sub(r" at 0x[0-9a-f]+", "", text).replace("'", "")


def documentation(thing: Any) -> str:
    """The docstring; examples in it become code blocks."""
    text = inspect.getdoc(thing) or ""
    blocks = re.split(r"\n\s*\n", text)
    return "\n\n".join(f"```pycon\n{b}\n```" if b.lstrip().startswith(">>>") else b for b in blocks)


def first_line(thing: Any) -> str:
    """The first line of the docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/build_reference.py OUT")
    main(Path(sys.argv[1]))
