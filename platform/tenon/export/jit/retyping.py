"""Record a program again when its module was converted to another dtype since it was traced."""

from __future__ import annotations

from types import MethodType, SimpleNamespace
from typing import Any

import numpy as np

from tenon.export import naming
from tenon.export.capture import captured_at_sizes
from tenon.export.jit.free_sizes import Sizes
from tenon.export.jit.program import STORE, Program, program_of
from tenon.export.jit.recording import Recording
from tenon.nn.module import Module
from tenon.tensors.creation.create import wrap
from tenon.tensors.tensor import Tensor


def _examples(program: Program) -> list[Tensor]:
    """Return arguments: those that it was traced with, or if it was loaded numbers that every op takes."""
    graph = program.graph
    if len(graph.example) == len(graph.arguments):
        return [wrap(raw, device="cpu") for raw in graph.example]
    avals = [node.avals[0] for node in graph.arguments]
    arrays = [
        (np.ones if aval.dtype.kind not in "biu" else np.zeros)(aval.shape, aval.dtype) for aval in avals
    ]
    return [wrap(array, device="cpu") for array in arrays]


def present(program: Program, owner: Any) -> Program:  # a ScriptModule or ScriptFunction
    """Return ``program``, recorded again if the tensors of ``owner`` have other dtypes than its graph."""
    kept = [(node, program.paths[node.label]) for node in program.graph.states]
    constants = [node for node in program.graph.nodes if node.kind == "constant"]
    kept += [(node, program.paths[f"constant {i}"]) for i, node in enumerate(constants)]
    changed = [
        value.dtype for node, path in kept if (value := owner._at(path)).raw.dtype != node.avals[0].dtype
    ]
    if not changed:
        return program
    signature = program.graph.signature
    leaves = [value.to(changed[0]) if value.is_floating_point() else value for value in _examples(program)]
    args, kwargs = signature.arguments_of(leaves)
    call = ((*args, *kwargs.values()), {}) if args else ((), kwargs)
    function = MethodType(program.function, owner)
    recording = Recording(function, call, strict=False, plain=True)
    names = naming.argument_names(function, *call)
    labels = dict(zip(signature.inputs, names, strict=True))
    dynamic = {labels[label]: axes for label, axes in program.graph.dynamic.items()}
    if dynamic:
        graph = captured_at_sizes(recording.runner(), call, dynamic, True, recording.recorder)
    else:
        graph = recording.first()
    paths = {}
    if isinstance(owner, Module):
        paths = {id(t.raw): name for name, t in (*owner.named_buffers(), *owner.named_parameters())}
    stored = getattr(owner, STORE, SimpleNamespace())
    sizes = Sizes(graph, program.any_shape, {(labels[n], a): why for (n, a), why in program.reasons.items()})
    return program_of(
        sizes, name=program.name, owner=program.owner, arguments=program.arguments, paths=paths, stored=stored
    )
