"""Facts about ops are fields of their classes: no tables of op names outside of ``ops/`` and ``testing/``."""

import ast
import re
from pathlib import Path

import pytest

import tenon
from tenon.engine.op import table

ROOT = Path(__file__).resolve().parents[2]
#: A table holds at least so many names of ops, and they are at least half of what it holds.
ENOUGH = 3

#: Tables that are not facts about ops. Take a row away with its table; add none.
ALLOWED = {
    "platform/tenon/kernels/expressions.py": "functions that an expression may call: the language, not the ops",
    "platform/tenon/export/layers.py": "which operand of an op is which tensor of a layer, to make the layer again",
    "platform/tenon/export/python_graph.py": "ops that are written as methods, whose arguments stay as code has them",
    "platform/tenon/export/unflattening/composites.py": "the layers that call recurrent ops",
    "platform/tenon/export/spelled_numbers.py": "arithmetic of numbers that Python computes from sizes",
    "platform/tenon/export/sizes.py": "arithmetic of sizes that are known when the graph runs",
    "platform/tenon/graph/scalar_functions.py": "arithmetic of Python numbers that change from run to run",
    "platform/tenon/graph/scalars.py": "Python's operators on such numbers",
    "platform/tenon/graph/numpy_calls.py": "how emitted programs spell calls of NumPy's own functions",
    "platform/tenon/graph/passes/canonicalise.py": "rewriting rules, which are the pass itself",
    "platform/tenon/tensors/methods/placement.py": "values of the argument reduce=",
    "platform/tenon/compat/rerouting.py": "Python's operator methods, and what handlers are shown for them",
    "plugins/tenon_compress/prune/size_inference.py": "ops whose sizes a pruned graph has to follow",
}


def names_of_ops():
    tenon.ones(1)
    return {op.name for op in table if type(op).__module__.startswith("tenon.ops.")}


def tables(tree, ops):
    """(line, names) of every literal that is a table of op names; ``__all__`` is a module's own list."""
    own = {
        id(statement.value)
        for statement in ast.walk(tree)
        if isinstance(statement, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == "__all__" for t in statement.targets)
    }
    for node in ast.walk(tree):
        if id(node) in own:
            continue
        for names in candidates(node):
            known = [n for n in names if n in ops]
            if len(known) >= ENOUGH and 2 * len(known) >= len(names):
                yield node.lineno, known


def candidates(node):
    """Lists of strings that ``node`` holds: elements, keys, values, words of a split string."""
    if isinstance(node, (ast.Set, ast.List, ast.Tuple)):
        yield strings(node.elts)
    elif isinstance(node, ast.Dict):
        yield strings(node.keys)
        yield strings(node.values)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
        yield from (text.split() for text in strings([node.func.value]))
    elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        yield from (text.split() for text in strings([node.value]))


def strings(nodes):
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def found_in(path, ops):
    return list(tables(ast.parse(path.read_text()), ops))


def sources():
    """Files of the platform and of plugins; the tables of backends and export targets are of kernels."""
    for top in ("platform", "plugins"):
        for path in sorted((ROOT / top).rglob("*.py")):
            part = str(path.relative_to(ROOT))
            if not part.startswith(
                ("platform/tenon/ops/", "platform/tenon/testing/", "plugins/tenon_target_")
            ):
                yield part, path


def quotes_ops(path, ops):
    """Whether ``path`` has enough names of ops in quotes: one file in twelve, and not those that split a string."""
    return sum(word in ops for word in re.findall(r"""["'](\w+)["']""", path.read_text())) >= ENOUGH


@pytest.mark.parametrize(
    "chosen",
    [quotes_ops, pytest.param(lambda path, ops: True, marks=pytest.mark.slow)],
    ids=["quoted", "all"],
)
def test_no_file_outside_ops_holds_a_table_of_op_names(chosen):
    ops = names_of_ops()

    paths = [(part, path) for part, path in sources() if part not in ALLOWED and chosen(path, ops)]
    found = {part: rows for part, path in paths if (rows := found_in(path, ops))}

    assert len(paths) > 20 and found == {}, (
        "make it a field or method of the op class (engine/op.py), and look it up"
    )


def test_every_allowed_table_is_there():
    ops = names_of_ops()

    gone = [part for part in ALLOWED if not (ROOT / part).exists() or not found_in(ROOT / part, ops)]

    assert gone == [], "take these rows out of ALLOWED"


@pytest.mark.parametrize(
    "text",
    [
        'X = {"exp", "log", "sin"}',
        'X = ["exp", "log", "sin", "other"]',
        'X = {"exp": 1, "log": 2, "sin": 3}',
        'X = {1: "exp", 2: "log", 3: "sin"}',
        'X = "exp log sin".split()',
        'X = """\n    exp log\n    sin\n"""',
    ],
)
def test_the_scan_finds_tables(text):
    assert list(tables(ast.parse(text), {"exp", "log", "sin"})) != []


def test_the_scan_leaves_other_literals_alone():
    text = (
        '__all__ = ["exp", "log", "sin"]\nX = ["exp", "log"]\nY = ["a", "b", "c", "d", "exp", "log", "sin"]'
    )

    assert list(tables(ast.parse(text), {"exp", "log", "sin"})) == []
