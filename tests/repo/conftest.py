"""The import graph of tenon's files: imports at the top, inside functions, and by names in strings."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tenon.compat.paths import MODULES

ROOT = Path(__file__).resolve().parents[2]
PLATFORM = ROOT / "platform"

#: A module, or what is in one, as ``"tenon.nn.module:Module"``.
MODULE = re.compile(r"tenon(\.\w+)+(:\w+)?")
QUOTED = re.compile(rf"""["']{MODULE.pattern}["']""")
#: The tables of second names, and the hook that reads them: data about modules, which they do not use.
TABLES = {"tenon.compat.reexports", "tenon.compat.finder", "tenon.compat.paths"}


class Import(NamedTuple):
    """One file names another."""

    source: str
    target: str
    line: int
    #: "import" at the top level, "late" inside of a function, "string", or "typing" under TYPE_CHECKING.
    kind: str


class ImportGraph:
    """The modules under ``platform/tenon`` and every mention of one in another."""

    def __init__(self):
        self.files = {self._name(path): path for path in sorted((PLATFORM / "tenon").rglob("*.py"))}
        self.imports = [each for name in self.files for each in self._imports_of(name)]

    def circles(self):
        """Import cycles: sets of files that reach each other, late imports and strings counted; the largest first."""
        targets = {name: [] for name in self.files}
        for each in self.imports:
            if each.kind != "typing":
                targets[each.source].append(each.target)
        return sorted(strongly_connected(targets), key=len, reverse=True)

    def _imports_of(self, source):
        found = set()
        for name, line, kind in mentions(self.files[source].read_text()):
            target = self._file_of(name, exact=kind == "string")
            if target not in (None, source) and not (kind == "string" and source in TABLES):
                found.add(Import(source, target, line, kind))
        return sorted(found)

    def _file_of(self, name, exact):
        """The module whose file ``name`` means: itself, the package that has it as an attribute, or None."""
        present = self._present(name)
        if present in self.files or exact:
            return present if present in self.files else None
        package = self._present(name.rpartition(".")[0])
        return package if package in self.files else None

    @staticmethod
    def _present(name):
        """``name`` by its first name."""
        head, tail = name, ""
        while head:
            if head in MODULES:
                return MODULES[head] + tail
            head, dot, last = head.rpartition(".")
            tail = dot + last + tail
        return name

    @staticmethod
    def _name(path):
        return ".".join(path.relative_to(PLATFORM).with_suffix("").parts).removesuffix(".__init__")


def mentions(text):
    """``(module or attribute of one, line, kind)`` of every import and every string that is a module's name."""
    found, waiting = [], [(ast.parse(text), "import")]
    passed = () if QUOTED.search(text) else ast.expr  # which hold strings, and no imports
    while waiting:
        node, kind = waiting.pop()
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and kind != "typing" and MODULE.fullmatch(node.value):
                found.append((node.value.partition(":")[0], node.lineno, "string"))
        elif isinstance(node, ast.Import):
            found += [(alias.name, node.lineno, kind) for alias in node.names if of_tenon(alias.name)]
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0 and of_tenon(node.module):
                found += [(f"{node.module}.{alias.name}", node.lineno, kind) for alias in node.names]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting += [(inner, "typing") for inner in node.body] + [(inner, kind) for inner in node.orelse]
        else:
            if kind == "import" and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                kind = "late"
            waiting += [
                (inner, kind) for inner in ast.iter_child_nodes(node) if not isinstance(inner, passed)
            ]
    return found


def of_tenon(name):
    return name is not None and name.partition(".")[0] == "tenon"


def strongly_connected(targets):
    """The sets of two and more nodes that reach each other (Tarjan, 1972, without recursion)."""
    number, lowest, stack, open_ = {}, {}, [], set()
    for root in targets:
        if root in number:
            continue
        work = [(root, iter(targets[root]))]
        number[root] = lowest[root] = len(number)
        stack.append(root)
        open_.add(root)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in number:
                    number[other] = lowest[other] = len(number)
                    stack.append(other)
                    open_.add(other)
                    work.append((other, iter(targets[other])))
                    break
                if other in open_:
                    lowest[node] = min(lowest[node], number[other])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == number[node]:
                    circle = set(stack[stack.index(node) :])
                    del stack[stack.index(node) :]
                    open_ -= circle
                    if len(circle) > 1:
                        yield circle


@pytest.fixture(scope="session")
def import_graph():
    return ImportGraph()
