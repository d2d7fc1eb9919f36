"""Write a captured graph as the JSON data of ``graph.json``; ``schema.py`` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, table
from tenon.engine.types import Array
from tenon.errors import LoweringError
from tenon.export import values
from tenon.export.captured import CapturedGraph
from tenon.export.json_types import Json
from tenon.export.signature import Result, Signature, TensorArgument
from tenon.graph.graph import Node, Ref
from tenon.random.draws import Draw
from tenon.tensors.tensor import Tensor

SCHEMA, VERSION = "tenon.graph", 1


def to_document(
    graph: CapturedGraph, views: Mapping[Node, Json] = MappingProxyType({})
) -> tuple[dict[str, Json], dict[str, Array]]:
    """Return ``graph`` as JSON data, and its state and constants by name, without those that are ``views``.

    LoweringError lists all calls that cannot be written: those of Python functions.
    """
    unwritable = [node for node in graph.calls if not _is_writable(node)]
    if unwritable:
        places = ", ".join(f"{node.name} ({node.where or node.module})" for node in unwritable[:5])
        raise LoweringError(
            f"{len(unwritable)} calls cannot be written to a file, as they call Python functions: {places}. "
            "Draw random numbers by tenon's functions, and leave collectives out."
        )
    positions = {node: i for i, node in enumerate(graph.nodes)}
    arrays: dict[str, Array] = {}
    scalars = {scalar.name: scalar for scalar in graph.signature.scalars}
    nodes: list[Json] = []
    generators: dict[int, int] = {}
    taken = {node.label for node in graph.inputs}
    for node in graph.nodes:
        sized = graph.with_sizes(node)
        if node.kind == "input":
            role = graph.signature.states.get(node.label, "argument")
            nodes.append({"kind": "input", "name": node.label, "role": role, **_aval(sized.avals[0])})
            if node in views:
                nodes[-1] |= {"view": views[node]}
            elif role != "argument":
                arrays[node.label] = node.value.raw if isinstance(node.value, Tensor) else node.value
        elif node.kind == "constant":
            name = f"constant.{positions[node]}"
            while name in taken:
                name += "_"
            arrays[name] = node.value
            nodes.append({"kind": "constant", "name": name, **_aval(sized.avals[0])})
        elif node.kind == "scalar":
            entry: dict[str, Json] = {"kind": "scalar", "function": node.function}
            if node.function == "input":
                scalar = scalars[node.label]
                entry |= {"name": scalar.name, "value": values.encode(scalar.value)}
                entry |= {"increment": values.encode(scalar.increment)}
            else:
                entry["args"] = [values.encode(a, positions) for a in node.args]
            nodes.append(entry)
        else:
            nodes.append(_call(sized, positions, generators))
    document: dict[str, Json] = {
        "schema": SCHEMA,
        "version": VERSION,
        "symbols": {
            name: {"example": each.example, "least": each.least, "most": each.most}
            for name, each in graph.symbols.items()
        },
        "nodes": nodes,
        "outputs": [_ref(ref, positions) for ref in graph.outputs],
        "writes": [{"target": positions[w.target], "value": _ref(w.value, positions)} for w in graph.writes],
        "guards": [
            {
                "value": _ref(g.value, positions),
                "question": g.question,
                "other": values.encode(g.other, positions),
                "answer": values.encode(g.answer),
                "where": _place(g.where),
            }
            for g in graph.guards
        ],
        "signature": _signature(graph.signature),
    }
    if graph.size_guards:  # readers that do not know the entry refuse the graph
        document["size_guards"] = [
            {
                "left": values.encode(g.left),
                "question": g.question,
                "right": values.encode(g.right),
                "answer": g.answer,
                "where": _place(g.where),
            }
            for g in graph.size_guards
        ]
    return document, arrays


def views_of(graph: CapturedGraph) -> dict[Node, Json]:
    """Return the states that are views of another, which is stored: its name, offset and strides."""
    spans: list[tuple[int, int, bool, int, Node, np.ndarray]] = []
    for number, node in enumerate(graph.states):
        raw = node.value.raw if isinstance(node.value, Tensor) else node.value
        if isinstance(raw, np.ndarray) and raw.size and min(raw.strides, default=0) >= 0:
            start = raw.__array_interface__["data"][0]
            reach = sum((size - 1) * stride for size, stride in zip(raw.shape, raw.strides, strict=True))
            end = start + reach + raw.itemsize
            spans.append((start, -end, not raw.flags.c_contiguous, number, node, raw))
    found: dict[Node, Json] = {}
    owner: tuple[int, int, Node, np.ndarray] | None = None
    for start, last, scattered, _, node, raw in sorted(spans, key=lambda each: each[:4]):
        if owner is not None and -last <= owner[1]:
            first, _, base_node, base = owner
            if base.dtype == raw.dtype and (start - first) % raw.itemsize == 0:
                strides: list[Json] = [stride // raw.itemsize for stride in raw.strides]
                offset = (start - first) // raw.itemsize
                found[node] = {"of": base_node.label, "offset": offset, "strides": strides}
        elif not scattered:
            owner = start, -last, node, raw
    return found


def _is_writable(node: Node) -> bool:
    if node.op.kind is Kind.COLLECTIVE or table.by_name.get(node.name) is not node.op:
        return False
    return values.is_plain(node.args) and values.is_plain(node.attrs)


def _call(node: Node, positions: Mapping[Node, int], generators: dict[int, int]) -> dict[str, Json]:
    entry: dict[str, Json] = {
        "kind": "call",
        "op": node.name,
        "args": [values.encode(a, positions) for a in node.args],
        "attrs": {name: values.encode(value) for name, value in node.attrs.items()},
        "outputs": [_aval(aval) for aval in node.avals],
    }
    draw = node.attrs.get("make")
    if isinstance(draw, Draw) and draw.generator is not None:
        body: Any = entry["attrs"]  # the dictionary above
        body["make"]["draw"].append(values.encode_generator(draw.generator, generators))
    for name, text in (("module", node.module), ("where", _place(node.where)), ("phase", node.phase)):
        if text:
            entry[name] = text
    return entry


def _place(where: str) -> str:
    """Return ``file:line`` without the folders, which differ from machine to machine."""
    return Path(where).name


def _aval(aval: Aval) -> dict[str, Json]:
    return {"dtype": values.dtype_name(aval.dtype), "shape": [values.encode(size) for size in aval.shape]}


def _ref(ref: Ref, positions: Mapping[Node, int]) -> list[int]:
    return [positions[ref.node], ref.index]


def _signature(signature: Signature) -> dict[str, Json]:
    return {
        "in": values.encode_spec(signature.in_spec),
        "arguments": [
            {"tensor": a.name} if isinstance(a, TensorArgument) else {"value": values.encode(a)}
            for a in signature.arguments
        ],
        "out": values.encode_spec(signature.out_spec),
        "returned": [
            {"output": r.index} if isinstance(r, Result) else {"value": values.encode(r)}
            for r in signature.returned
        ],
        **({"aliases": dict(signature.aliases)} if signature.aliases else {}),
    }
