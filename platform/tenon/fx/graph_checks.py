"""Validate graphs, warn while one is built, and print a table of its nodes."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.fx.graph import Graph
    from tenon.fx.node import Node


def lint(graph: Graph) -> None:
    """Raise RuntimeError, AssertionError or ValueError if ``graph`` is not well formed.

    Every node's inputs come before it, names are unique, and the paths of modules and attributes exist.
    """
    seen_names: set[str] = set()
    seen: set[Node] = set()
    for node in graph.nodes:
        if node.graph is not graph:
            raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
        for used in node.all_input_nodes:
            _check_input(graph, node, used, seen)
        seen.add(node)
        if node.name in seen_names:
            raise RuntimeError(f"Node redefined name {node.name}!")
        seen_names.add(node.name)
        _check_target(graph, node)


def _check_input(graph: Graph, node: Node, used: Node, seen: set[Node]) -> None:
    if used.graph is not graph:
        raise RuntimeError(
            f"Argument '{used}' of Node '{node}' does not belong to this Graph, but was used as an argument!"
            " If you are copying nodes from another graph, make sure to use ``arg_transform`` on node_copy()"
            f" to remap values\n{graph}"
        )
    if used not in seen:
        raise RuntimeError(
            f"Argument '{used}' of Node '{node}' was used before it has been defined! Please check that Nodes"
            f" in the graph are topologically ordered\n{graph}"
        )


def _check_target(graph: Graph, node: Node) -> None:
    if node.op == "call_function":
        if not callable(node.target):
            raise ValueError(
                f"Node {node} target {node.target} has type {type(node.target)} but a callable is expected"
            )
        return
    if not isinstance(node.target, str):
        raise ValueError(
            f"Node {node} target {node.target} has type {type(node.target)} but a Str is expected"
        )
    if node.op not in ("get_attr", "call_module") or graph.owning_module is None:
        return
    value: object = graph.owning_module
    path = node.target.split(".")
    for depth, name in enumerate(path):
        missing = not hasattr(value, name)
        if missing:
            kind = type(value).__name__
            raise RuntimeError(
                f"Node {node} target {node.target} references nonexistent attribute {name} of"
                f" {'.'.join(path[:depth]) or kind}"
            )
        value = getattr(value, name)
    if node.op == "call_module" and not isinstance(value, Module):
        raise RuntimeError(f"Node {node} target {node.target} {path[-1]} does not reference an nn.Module")
    if node.op == "get_attr" and not isinstance(value, (Module, Parameter, Tensor)):
        warnings.warn(
            f"Node {node} target {node.target} {path[-1]} does not reference an nn.Module, nn.Parameter,"
            " or buffer,"
            " which is what 'get_attr' Nodes typically target",
            stacklevel=4,
        )


def warn_of_missing_attribute(owner: Module, path: str) -> None:
    """Warn if ``owner`` has no module, parameter or buffer at ``path``."""
    holder, name = _holder(owner, path)
    known = holder is not None and any(
        name in registry for registry in (holder._modules, holder._parameters, holder._buffers)
    )
    if not known:
        warnings.warn(
            "Attempted to insert a get_attr Node with no underlying reference in the owning GraphModule! Call"
            f" GraphModule.add_submodule, add_parameter or register_buffer for {path!r} first.",
            stacklevel=3,
        )


def warn_of_missing_module(owner: Module, path: str) -> None:
    """Warn if ``owner`` has no submodule at ``path``."""
    holder, name = _holder(owner, path)
    if holder is None or name not in holder._modules:
        warnings.warn(
            "Attempted to insert a call_module Node with no underlying reference in the owning"
            " GraphModule! Call"
            f" GraphModule.add_submodule to add the necessary submodule {path!r}",
            stacklevel=3,
        )


def warn_of_second_erasure(node: Node) -> None:
    """Warn that ``node`` has been erased before."""
    warnings.warn(f"erase_node({node}) on an already erased node", stacklevel=3)


def _holder(owner: Module, path: str) -> tuple[Module | None, str]:
    """Return the module that should have the last name of ``path``, or None, and that name."""
    *names, last = path.split(".")
    holder: object = owner
    for name in names:
        holder = getattr(holder, name, None)
    return (holder if isinstance(holder, Module) else None), last


def table(graph: Graph) -> str:
    """Return the nodes as a table of op, name, target and arguments."""
    rows = [["opcode", "name", "target", "args", "kwargs"]]
    rows += [[n.op, n.name, str(n.target), str(n.args), str(n.kwargs)] for n in graph.nodes]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
