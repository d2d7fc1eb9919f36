"""docs/architecture.md is correct: all names in it exist, and its call paths run in the given order."""

import ast
import re
import sys
from pathlib import Path

import pytest

import tenon
from tenon import nn
from tenon.engine.op import table

pytestmark = pytest.mark.together

ROOT = Path(__file__).resolve().parents[2]
TENON = ROOT / "platform" / "tenon"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
#: ``file.py:function`` or ``file.py:Class.method``, as the page writes it.
NAMED = re.compile(r"`([\w/]+\.py)(?::([\w.]+))?`")
PATHS = {
    title: text
    for title, text in re.findall(r"^## The path of (.+)\n((?:(?!^## ).*\n)*)", PAGE, re.MULTILINE)
}


def path_of(name):
    """The file that the page means."""
    top = ROOT if name.startswith(("plugins/", "backends/", "tests/")) else TENON
    return top / name


def names_in(path):
    """Functions and classes of a file, and the methods and bases' names of its classes."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef))


def steps(title):
    """The numbered steps of a path: ``(file, function)``."""
    return re.findall(r"^\d+\. `([\w/]+\.py):([\w.]+)`", PATHS[title], re.MULTILINE)


def visited(work):
    """``(file, function)`` of every Python function that ``work`` enters, in order."""
    found = []

    def note(frame, event, argument):
        if event == "call":
            found.append((frame.f_code.co_filename, frame.f_code.co_name))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


def check_order(title, work):
    """The steps of a path run in its order: each for the first time after the one before it."""
    expected = [(str(path_of(file)), function.rpartition(".")[2]) for file, function in steps(title)]
    seen = visited(work)
    first = [seen.index(step) if step in seen else None for step in expected]

    assert len(expected) > 3
    assert None not in first, [step for step, at in zip(expected, first, strict=True) if at is None]
    assert first == sorted(first)


def test_there_are_four_paths():
    assert list(PATHS) == ["`a + b`", "`loss.backward()`", "a compiled step", "a gradient through MPI"]
    assert all(len(steps(title)) >= 5 for title in PATHS)


def test_steps_are_numbered_in_order():
    for text in PATHS.values():
        numbers = [int(number) for number in re.findall(r"^(\d+)\. ", text, re.MULTILINE)]
        assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(("file", "function"), sorted(set(NAMED.findall(PAGE))))
def test_what_the_page_names_exists(file, function):
    path = path_of(file)

    assert path.is_file()
    assert not function or function in set(names_in(path))


def test_the_picture_has_every_part_of_tenon():
    picture = PAGE.partition("```\n")[2].partition("```")[0]
    shown = set(re.findall(r"\b(\w+)(?:/|\.py)", picture)) | {"tenon"}
    parts = {path.stem for path in TENON.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}

    assert shown - parts - {"tenon", "plugins", "backends"} == set()
    assert parts - shown == {"__init__", "cuda"}  # a face of functions and devices


def test_every_file_of_the_engine_has_a_row():
    files = {f"engine/{path.name}" for path in (TENON / "engine").glob("*.py")} - {"engine/__init__.py"}

    assert files <= {file for file, _ in NAMED.findall(PAGE)}


def test_the_engine_imports_nothing_from_above(import_graph):
    below = ("tenon.engine", "tenon.errors", "tenon.dtypes", "tenon.device", "tenon.config")
    found = {
        (each.source, each.target)
        for each in import_graph.imports
        if each.source.startswith("tenon.engine") and not each.target.startswith(below)
    }

    assert found == set()


def test_the_path_of_a_sum():
    a, b = tenon.ones(2, 2), tenon.ones(2, 2, requires_grad=True)
    for each in (a._backend.plans, a._backend.kernels, a._backend.short_kernels):
        each.pop(table.add, None)  # as at its first call

    check_order("`a + b`", lambda: a + b)


def test_the_path_of_a_backward_pass():
    a, b = tenon.ones(2, 2), tenon.ones(2, 2, requires_grad=True)
    loss = (a * b).sum()

    check_order("`loss.backward()`", lambda: loss.backward())


def test_the_path_of_a_compiled_step():
    net = nn.Linear(3, 3)
    optimizer = tenon.optim.SGD(net.parameters(), lr=0.1)
    x = tenon.ones(2, 3)

    @tenon.compile
    def step(x):
        optimizer.zero_grad()
        loss = net(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    check_order("a compiled step", lambda: [step(x) for _ in range(4)])
    again = [file for file, _ in visited(lambda: step(x))]

    assert str(TENON / "graph/compile.py") in again
    assert not {str(TENON / "graph/recording.py"), str(TENON / "engine/sweep.py")} & set(again)
