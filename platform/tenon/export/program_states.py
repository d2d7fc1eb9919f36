"""The parameters and buffers of an exported module as inputs of its graph: all of them, in its order."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from tenon.engine.aval import Aval
from tenon.export.captured import CapturedGraph
from tenon.export.naming import named_tensors
from tenon.graph.graph import Node
from tenon.nn.module import Module
from tenon.tensors.tensor import Tensor

#: Label, kind ("parameter" or "buffer") and tensor.
State: TypeAlias = tuple[str, str, Tensor]


def states_of(module: Module) -> list[State]:
    """Return the parameters and then the buffers of ``module``; a shared one has its first name."""
    parameters: list[State] = [(name, "parameter", each) for name, each in module.named_parameters()]
    return parameters + [(name, "buffer", each) for name, each in module.named_buffers()]


def aliases_of(module: Module) -> dict[str, str]:
    """Return the other names of shared parameters and buffers -> the first one."""
    first: dict[int, str] = {}
    names = [(name, first.setdefault(id(tensor), name)) for name, tensor in named_tensors(module)]
    return {name: label for name, label in names if name != label}


def temporary_buffers(module: Module) -> frozenset[str]:
    """Return the names of the buffers that ``module`` leaves out of its state dict."""
    names = frozenset(name for name, _ in module.named_buffers(remove_duplicate=False))
    return names - frozenset(module.state_dict())


def held_states(graph: CapturedGraph) -> list[State]:
    """Return the parameters and buffers of ``graph``."""
    kinds = graph.signature.states
    return [
        (node.label, kinds[node.label], node.value)
        for node in graph.states
        if kinds[node.label] in ("parameter", "buffer")
    ]


def add_states(
    graph: CapturedGraph, states: Iterable[State], aliases: Mapping[str, str] | None = None
) -> None:
    """Put inputs for ``states`` to the front of ``graph``, also for those that it does not read.

    ``aliases`` are other names of them.
    """
    known = {id(node.value): node for node in graph.states}
    kinds = dict(graph.signature.states)
    first: list[Node] = []
    for label, kind, tensor in states:
        node = known.get(id(tensor))
        if node is None:
            node = Node("input")
            node.avals = (Aval(tuple(tensor.raw.shape), tensor.raw.dtype),)
            node.label, node.value = label, tensor
            kinds[label] = kind
        first.append(node)
    moved = set(first)
    graph.nodes = first + [node for node in graph.nodes if node not in moved]
    known_aliases = {**graph.signature.aliases, **(aliases or {})}
    graph.signature = dataclasses.replace(graph.signature, states=kinds, aliases=known_aliases)
