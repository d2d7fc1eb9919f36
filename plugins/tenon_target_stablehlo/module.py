"""The text of ``model.mlir``, and the contents of ``model.json`` and ``weights.safetensors`` for it.

Weights are arguments of ``main``: the text stays short and readable, a training step can return their new
values, and an optimizing compiler need not read millions of numbers. Small constants are written into the
text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenon import __version__
from tenon.extend import Aval, CapturedGraph
from tenon_target_stablehlo.builder import FLOAT64, Builder, Value
from tenon_target_stablehlo.lowering import write_calls
from tenon_target_stablehlo.sizes import is_number
from tenon_target_stablehlo.texts import symbol_text

#: The version of StableHLO whose operations are used; consumers of later versions read it.
VERSION = "1.0.0"
#: Constants of more elements are stored with the weights.
_LARGEST = 1024


@dataclass
class Module:
    """A model as text, the description of its arguments and results, and the arrays of its weights."""

    text: str = ""
    arguments: list[dict[str, Any]] = field(default_factory=list)  # JSON
    results: list[dict[str, Any]] = field(default_factory=list)  # JSON
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    symbols: dict[str, Any] = field(default_factory=dict)  # JSON
    guards: list[dict[str, Any]] = field(default_factory=list)  # JSON

    def description(self) -> str:
        """Return ``model.json``, with a line for each argument and result."""
        head = {"format": "tenon.stablehlo", "version": 1, "stablehlo": VERSION, "function": "main"}
        lists = []
        for name, rows in (("arguments", self.arguments), ("results", self.results)):
            inner = ",\n".join(f"  {json.dumps(row)}" for row in rows)
            lists.append(f' "{name}": [\n{inner}\n ]')
        parts = [f" {json.dumps(head)[1:-1]}", *lists, f' "sizes": {json.dumps(self.symbols)}']
        if self.guards:
            inner = ",\n".join(f"  {json.dumps(row)}" for row in self.guards)
            parts.append(f' "size_guards": [\n{inner}\n ]')
        return "{\n" + ",\n".join(parts) + "\n}\n"


def make(graph: CapturedGraph) -> Module:
    """Return the module of a graph, which is in calls that have a form."""
    graph = graph.sized()
    b, module = Builder(), Module()
    names: dict[str, int] = {}
    parameters: list[Value] = []

    def argument(label: str, role: str, aval: Aval, **more: float) -> Value:
        name = symbol_text(label)
        count = names[name] = names.get(name, 0) + 1
        value = Value(f"{name}_{count}" if count > 1 else name, aval.dtype, tuple(aval.shape))
        parameters.append(value)
        module.arguments.append({"name": label, "role": role, **_described(aval), **more})
        return value

    for node in graph.arguments:
        value = b.values[node.out()] = argument(node.label, "argument", node.avals[0])
        for axis, size in enumerate(value.shape):
            if not is_number(size):
                b.symbols.setdefault(str(size), (value, axis))
    for node, scalar in graph.scalars:
        more = {"value": float(scalar.value), "increment": float(scalar.increment)}
        b.values[node.out()] = argument(scalar.name, "number", Aval((), FLOAT64), **more)
    for node in graph.states:
        role = graph.signature.states[node.label]
        b.values[node.out()] = argument(node.label, role, node.avals[0])
        module.arrays[node.label] = np.asarray(node.value.detach().numpy())
    _add_constants(b, module, graph, argument)
    write_calls(b, graph)
    returned = [b.values[ref] for ref in graph.outputs] + [b.values[w.value] for w in graph.writes]
    module.results = [{"role": "output", **_described(ref.aval)} for ref in graph.outputs]
    module.results += [{"role": "state", "name": w.target.label} for w in graph.writes]
    module.symbols = {
        name: {"least": symbol.least, "most": symbol.most} for name, symbol in graph.symbols.items()
    }
    module.guards = [
        {
            "left": str(guard.left), "question": guard.question, "right": str(guard.right),
            "answer": guard.answer, "condition": guard.condition, "where": guard.place,
        }
        for guard in graph.size_guards
    ]  # fmt: skip
    module.text = _text(b, parameters, returned)
    return module


def _add_constants(b: Builder, module: Module, graph: CapturedGraph, argument: Any) -> None:  # a function
    """Write small constants, and make arguments of the others."""
    count = 0
    for node in graph.nodes:
        if node.kind != "constant":
            continue
        array = np.asarray(node.value)
        if array.size <= _LARGEST:
            b.values[node.out()] = b.constant(array, array.dtype)
            continue
        count += 1
        label = f"constant.{count}"
        b.values[node.out()] = argument(label, "constant", Aval(tuple(array.shape), array.dtype))
        module.arrays[label] = array


def _described(aval: Aval) -> dict[str, Any]:  # JSON
    shape = [int(size) if is_number(size) else str(size) for size in aval.shape]
    return {"dtype": aval.dtype.name, "shape": shape}


def _text(b: Builder, parameters: Sequence[Value], returned: Sequence[Value]) -> str:
    """Return the file."""
    argument_types = ",\n    ".join(f"{p.name}: {p.type}" for p in parameters)
    types = ", ".join(r.type for r in returned)
    result_types = f"({types})" if len(returned) != 1 else types
    names = ", ".join(r.name for r in returned)
    values = f"return {names} : {types}" if returned else "return"
    body = "\n".join(f"    {line}" for line in [*_needed(b.lines, names), values])
    places = "\n".join(f"{alias} = {text}" for text, alias in b.locations.items() if f"({alias})" in body)
    return (
        f"// StableHLO {VERSION}, written by tenon {__version__}. Arguments: see model.json.\n"
        f"module @model {{\n  func.func public @main(\n    {argument_types}\n  ) -> {result_types} {{\n"
        f"{body}\n  }}\n}}\n" + (places + "\n" if places else "")
    )


def _needed(lines: Sequence[str], returned: str) -> list[str]:
    """Return the lines whose values are used, with their headings."""
    read, kept, heading = set(_names(returned)), [], False
    for line in reversed(lines):
        if line.startswith("//"):
            if heading:
                kept.append(line)
            heading = False
            continue
        target, _, text = line.partition(" = ")
        if target.partition(":")[0] in read:
            read.update(_names(text))
            kept.append(line)
            heading = True
    return kept[::-1]


def _names(text: str) -> list[str]:
    """Return the names of values in a line."""
    names = []
    for part in text.split("%")[1:]:
        end = next((i for i, c in enumerate(part) if not (c.isalnum() or c in "._$-")), len(part))
        names.append("%" + part[:end])
    return names
