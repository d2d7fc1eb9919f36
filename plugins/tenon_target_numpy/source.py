"""The text of ``runner.py``: the frame of ``templates/runner.py`` around a ``Program``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tenon_target_numpy import library
from tenon_target_numpy.library import Definition
from tenon_target_numpy.program import Program
from tenon_target_numpy.texts import is_symbolic, value_text

_TABLES = ("INPUTS", "SIZES", "STATE", "NUMBERS", "TOLERANCE")
_WIDTH = 100
#: Names of inputs that stand in the docstring: those of parameters and places in nests, ``batch.0.mask``.
_PATH = re.compile(r"[\w.]+")


def runner_text(program: Program, tolerance: tuple[float, float]) -> str:
    """Return the file."""
    frame = library.frame()
    functions = library.needed(program.functions)
    parts = [
        f'"""{_title(program)}"""',
        "\n".join(["from __future__ import annotations", "", *_imports([*functions, *frame.values()])]),
        "\n".join(_tables(program, tolerance)),
        *(f.text for f in functions),
        compute_text(program),
        *(d.text for name, d in frame.items() if name not in (*_TABLES, "compute")),
        'if __name__ == "__main__":\n    sys.exit(main(sys.argv[1:]))',
    ]
    return "\n\n\n".join(parts) + "\n"


def _title(program: Program) -> str:
    names = program.graph.signature.inputs
    shown = (n if _PATH.fullmatch(n) else p for n, p in zip(names, program.parameters, strict=True))
    inputs = ", ".join(shown)
    kind = "A training step" if program.graph.writes else "A model"
    state = (
        "\n\n``Runner`` keeps the state between runs: ``runner = Runner()``, ``runner.run(...)`` for each\n"
        "step, ``runner.numbers`` has learning rates, ``runner.save(path)`` writes the new weights."
        if program.graph.writes
        else ""
    )
    return (
        f"{kind} in NumPy, written by tenon. It needs this file and weights.safetensors only.\n\n"
        f"``run({inputs})`` takes arrays by position or name and returns the output, or a tuple of several.\n"
        f"``python runner.py`` runs the test vectors beside it.{state}\n"
    )


def _imports(definitions: Iterable[Definition]) -> list[str]:
    lines = {line for d in definitions for line in d.imports} | {"import numpy as np", "import sys"}
    standard = sorted(line for line in lines if line != "import numpy as np")
    plain = [line for line in standard if line.startswith("import ")]
    return [*plain, *_merged(line for line in standard if line.startswith("from ")), "", "import numpy as np"]


def _merged(lines: Iterable[str]) -> list[str]:
    """Return the import lines, one for each module."""
    names: dict[str, list[str]] = {}
    for line in lines:
        module, _, name = line.removeprefix("from ").partition(" import ")
        names.setdefault(module, []).append(name)
    return [
        f"from {module} import {', '.join(sorted(imported))}" for module, imported in sorted(names.items())
    ]


def _tables(program: Program, tolerance: tuple[float, float]) -> list[str]:
    frame, graph = library.frame(), program.graph
    inputs = {
        node.label: (node.avals[0].dtype.name, tuple(node.avals[0].shape))
        for node in map(graph.with_sizes, graph.arguments)
    }
    state = {name: (array.dtype.name, array.shape) for name, array in program.arrays.items()}
    sizes = {name: (symbol.least, symbol.most) for name, symbol in graph.symbols.items()}
    numbers = {s.name: (float(s.value), float(s.increment)) for s in graph.signature.scalars}
    lines = []
    for name, table in (("INPUTS", inputs), ("SIZES", sizes), ("STATE", state), ("NUMBERS", numbers)):
        head = frame[name].text.rsplit(" = ", 1)[0]
        if not table:
            lines.append(f"{head} = {{}}")
            continue
        lines.append(f"{head} = {{")
        lines += [f"    {key!r}: {_row(value)}," for key, value in table.items()]
        lines.append("}")
    comment = frame["TOLERANCE"].text.rsplit("\n", 1)[0]
    lines += [comment, f"TOLERANCE = {tolerance!r}"]
    return lines


def _row(value: tuple[object, ...]) -> str:
    first, second = value
    return f"({first!r}, {_shape(second)})"


def _shape(value: object) -> str:
    if not isinstance(value, tuple):
        return repr(value)
    return value_text(tuple(str(size) if is_symbolic(size) else int(size) for size in value))


def compute_text(program: Program) -> str:
    """Return the function ``compute``."""
    names = ", ".join(f"{name}: np.ndarray" for name in program.parameters)
    head = [
        "def compute(",
        f"    state: Mapping[str, np.ndarray], numbers: Mapping[str, float]{', ' if names else ''}{names}",
        ") -> tuple[list[np.ndarray], dict[str, np.ndarray]]:",
        '    """Return the outputs, and the new values of what the run writes."""',
    ]
    body = [line for text in program.lines for line in _wrapped(text)]
    return "\n".join([*head, *(f"    {line}" if line else "" for line in body)])


def _wrapped(line: str) -> list[str]:
    """Break a long line after commas within brackets."""
    result: list[str] = []
    depth = 0
    while len(line) > _WIDTH and not line.startswith("#"):
        place, depth = _break(line, depth)
        if place is None:
            break
        result.append(line[:place])
        line = "    " + line[place + 1 :]
    return [*result, line]


def _break(line: str, depth: int) -> tuple[int | None, int]:
    """Return the last place in the width at which a line may be broken, and the number of brackets that are
    open there; ``depth`` is that at its beginning."""
    found, open_there, quote = None, depth, ""
    for place, letter in enumerate(line[:_WIDTH]):
        if quote:
            quote = "" if letter == quote and line[place - 1] != "\\" else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == " " and depth > 0 and line[place - 1] == ",":
            found, open_there = place, depth
    return found, open_there
