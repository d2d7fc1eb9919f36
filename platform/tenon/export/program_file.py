"""Files of exported programs: archives of ``graph.json`` and ``weights.safetensors``, see ``archive.py``.

Both are those of a bundle, see ``bundle.py``. ``program.json`` has the names of arguments and of buffers that
are not persistent; the weights have the tensors of the example too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, BinaryIO

from tenon.errors import BundleError
from tenon.export import archive, schema
from tenon.export.exported_program import ExportedProgram, Names
from tenon.export.json_types import Json
from tenon.nn.parameter import Parameter

GRAPH, PROGRAM = "graph.json", "program.json"
#: Before the number of an argument: the name of its tensor in the example that the program was exported with.
_EXAMPLE = "example/"


def save(
    ep: ExportedProgram,
    f: str | os.PathLike[str] | BinaryIO,
    extra_files: Mapping[str, str | bytes] | None = None,
) -> None:
    """Write a program to a file; a path is replaced atomically, and all of it or nothing."""
    document, arrays = schema.to_document(ep.whole, schema.views_of(ep.whole))
    frozen = sorted(name for name, each in ep.named_parameters() if not each.requires_grad)
    names: dict[str, Json] = {
        "arguments": list(ep.names.arguments),
        "temporary": sorted(ep.names.temporary),
        "frozen": frozen,
    }
    example = {f"{_EXAMPLE}{number}": array for number, array in enumerate(ep.captured.example)}
    archive.write(f, {GRAPH: document, PROGRAM: names}, arrays | example, extra_files)


def load(
    f: str | os.PathLike[str] | BinaryIO,
    extra_files: dict[str, Any] | None = None,  # values of any type are replaced by text
) -> ExportedProgram:
    """Read a program; nothing in the file is executed. BundleError if it is damaged."""
    source = os.fspath(f) if isinstance(f, str | os.PathLike) else "the file"
    with archive.reading(f, source, "tenon.export.save") as opened:
        document = archive.document(opened, GRAPH, source)
        arrays = archive.tensors(opened, source)
        # Older files have none.
        named = PROGRAM in opened.namelist()
        names, frozen = (
            _names(archive.document(opened, PROGRAM, source), source) if named else (Names(), frozenset())
        )
        extras = {
            name: archive.member(opened, f"extra/{name}", schema.MAX_FILE).decode()
            for name in extra_files or ()
        }
    example = [arrays.pop(f"{_EXAMPLE}{i}") for i in range(len(arrays)) if f"{_EXAMPLE}{i}" in arrays]
    graph = schema.from_document(document, arrays, source)
    given = [(tuple(t.raw.shape), t.raw.dtype) for t in example]
    if example and given != [(node.avals[0].shape, node.avals[0].dtype) for node in graph.arguments]:
        raise BundleError(f"{source}: the example has other shapes or dtypes than the arguments.")
    graph.example = [tensor.raw for tensor in example]
    for node in graph.states:
        if graph.signature.states[node.label] == "parameter":
            trained = node.label not in frozen and node.value.is_floating_point()
            node.value = Parameter(node.value, trained)
    inputs = graph.signature.arguments_of(example) if len(example) == len(graph.arguments) else None
    program = ExportedProgram(graph, inputs, names)
    if extra_files is not None:
        extra_files.update(extras)
    return program


def _names(read: Mapping[str, Json], source: str) -> tuple[Names, frozenset[str]]:
    """Return the names in ``program.json``, and those of parameters that are not trained."""
    keys = {"arguments", "temporary"}  # older files have no "frozen"
    lists = list(read.values()) if keys <= set(read) <= keys | {"frozen"} else [None]
    if not all(isinstance(each, list) and all(type(name) is str for name in each) for each in lists):
        raise BundleError(f"{source}: {PROGRAM} does not hold lists of names.")
    return Names(tuple(read["arguments"]), frozenset(read["temporary"])), frozenset(read.get("frozen", ()))
