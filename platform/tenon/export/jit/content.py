"""What files of traces contain, beyond what all archives have (``export/archive.py``).

| file in the archive | content |
|---|---|
| ``module.json`` | the tree of modules, where each parameter and buffer is stored, and the methods |
| ``methods/NAME.json`` | the graph of a method, in the schema of ``graph.json`` |
| ``parts/NUMBER/NAME.json`` | that of a method of a submodule; modules are numbered as in the tree |
| ``weights.safetensors`` | parameters, buffers and constants |
| ``extra/NAME`` | the ``_extra_files`` |

A reader treats all of it as untrusted: nothing is executed, and inconsistent content is an error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from tenon.errors import UnsupportedError
from tenon.export import archive, schema
from tenon.export.jit.program import REASON, STORE, Program, bound, without_names
from tenon.export.jit.retyping import present
from tenon.export.json_types import Json
from tenon.tensors.tensor import Tensor

MODULE = "module.json"
#: The folders of the graphs of the methods, and of those of parts.
METHODS, PARTS = "methods", "parts"
SCHEMA, VERSION = "tenon.trace", 1


class Content:
    """What goes into a file: the description of a module, graphs by file, arrays by name."""

    def __init__(self) -> None:
        self.document: dict[str, Json] = {"schema": SCHEMA, "version": VERSION}
        self.graphs: dict[str, dict[str, Json]] = {}
        self.arrays: dict[str, np.ndarray] = {}
        self._names: dict[int, str] = {}

    def keep(self, name: str, tensor: Tensor) -> str:
        """Store a tensor under ``name``; return the name under which it is stored, once if it is shared."""
        known = self._names.get(id(tensor))
        if known is None:
            known = self._names[id(tensor)] = name
            self.arrays[name] = tensor.detach().cpu().raw
        return known

    def methods(self, owner: Any, at: Mapping[str, str], folder: str) -> Json:  # a ScriptModule
        """Add the graphs of all methods of a module; ``at`` are the names of stored tensors by path."""
        return {name: self.method(program, owner, at, folder) for name, program in owner._programs.items()}

    def method(
        self,
        program: Program,
        owner: Any,  # that has it
        at: Mapping[str, str],
        folder: str,
    ) -> dict[str, Json]:
        """Add the graph of a method as a file in ``folder``."""
        program, read = present(program, owner), owner._at
        graph = bound(program, read)
        graph.signature = replace(graph.signature, in_spec=without_names(graph.signature.in_spec))
        document, arrays = schema.to_document(graph)
        self.graphs[f"{folder}/{program.name}.json"] = document
        states: dict[str, str] = {}
        constants = 0
        for label in arrays:
            if label in program.paths and label in program.graph.signature.states:
                path = program.paths[label]
                states[label] = at[path] if path in at else self.keep(f"stored {path}", read(path))
            else:
                path = program.paths[f"constant {constants}"]
                constants += 1
                states[label] = self.keep(f"stored {path}", read(path))
        return {
            "arguments": list(program.arguments),
            "owner": program.owner,
            "tensors": states,
            "paths": {label: p for label, p in program.paths.items() if not p.startswith(f"{STORE}.")},
            "any_shape": program.any_shape,
            "fixed": [[name, axis, why] for (name, axis), why in program.reasons.items()],
        }


def module_entry(module: Any) -> Content:  # a ScriptModule
    """Return what to write for a traced module."""
    content = Content()
    at: dict[str, str] = {}
    seen: dict[int, int] = {}
    parts: list[tuple[str, Any, dict[str, Json]]] = []  # the path of each part with methods, and its entry

    def tree(part: Any, prefix: str) -> Json:  # a module
        if id(part) in seen:
            return {"same": seen[id(part)]}
        seen[id(part)] = len(seen)
        entry: dict[str, Json] = {
            "name": part.original_name, "training": part.training, "parameters": {}, "buffers": {},
            "children": {},
        }  # fmt: skip
        for name, parameter in part._parameters.items():
            if parameter is None:
                entry["parameters"][name] = None
                continue
            at[f"{prefix}{name}"] = content.keep(f"{prefix}{name}", parameter)
            entry["parameters"][name] = {"tensor": at[f"{prefix}{name}"], "grad": parameter.requires_grad}
        for name, buffer in part._buffers.items():
            if buffer is None:
                entry["buffers"][name] = None
                continue
            at[f"{prefix}{name}"] = content.keep(f"{prefix}{name}", buffer)
            kept = name not in part._non_persistent_buffers_set
            entry["buffers"][name] = {"tensor": at[f"{prefix}{name}"], "persistent": kept}
        for name, child in part._modules.items():
            entry["children"][name] = None if child is None else tree(child, f"{prefix}{name}.")
        if prefix and part._complete()._programs:
            parts.append((prefix, part, entry))
        elif prefix:
            entry["not alone"] = part.__dict__.get(REASON)
        return entry

    content.document["root"] = tree(module, "")
    content.document["methods"] = content.methods(module, at, METHODS)
    for prefix, part, entry in parts:
        own = {path.removeprefix(prefix): name for path, name in at.items() if path.startswith(prefix)}
        entry["methods"] = content.methods(part, own, f"{PARTS}/{seen[id(part)]}")
    return content


def function_entry(function: Any) -> Content:  # a ScriptFunction
    """Return what to write for a traced function: a module without parameters."""
    content = Content()
    content.document["root"] = {
        "name": function.name, "training": True, "parameters": {}, "buffers": {}, "children": {},
    }  # fmt: skip
    content.document["methods"] = {"forward": content.method(function.program, function, {}, METHODS)}
    return content


def write(
    f: str | os.PathLike[str] | BinaryIO, content: Content, extra_files: Mapping[str, str | bytes] | None
) -> None:
    """Write a file; a path is replaced atomically."""
    archive.write(f, {MODULE: content.document, **content.graphs}, content.arrays, extra_files)


def save(
    m: Any,  # a ScriptModule or ScriptFunction; anything else is refused
    f: str | os.PathLike[str] | BinaryIO,
    _extra_files: Mapping[str, str | bytes] | None = None,
) -> None:
    """Write a traced module or function to a file; see ``ScriptModule.save``."""
    if not hasattr(m, "save_to_buffer"):
        raise UnsupportedError(
            f"tenon.jit.save writes traces, not a {type(m).__name__}, which is Python. Trace it first: "
            "tenon.jit.save(tenon.jit.trace(model, example_inputs), path); tenon.save(model.state_dict(), "
            "path) writes the weights alone."
        )
    m.save(f, _extra_files)
