"""Record a program again when its module was converted to another dtype since it was traced."""

from __future__ import annotations

from types import MethodType, SimpleNamespace
from typing import Any

from tenon import dtypes
from tenon.export import naming
from tenon.export.capture import captured_at_sizes
from tenon.export.jit.free_sizes import Sizes
from tenon.export.jit.program import STORE, Program, program_of
from tenon.export.jit.recording import Recording
from tenon.nn.module import Module
from tenon.tensors.creation.factories import zeros


def present(program: Program, owner: Any) -> Program:  # a ScriptModule or ScriptFunction
    """Return ``program``, recorded again if the tensors of ``owner`` have other dtypes than its graph."""
    changed = [
        value.dtype
        for node in program.graph.states
        if (value := owner._at(program.paths[node.label])).raw.dtype != node.avals[0].dtype
    ]
    if not changed:
        return program
    signature = program.graph.signature
    leaves = []
    for node in program.graph.arguments:
        dtype = dtypes.FROM_NUMPY[node.avals[0].dtype]
        leaves.append(zeros(node.avals[0].shape, dtype=changed[0] if dtype.is_floating_point else dtype))
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
