"""Attributes at paths like ``layers.0.weight``: look them up, and set them together with missing parents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.fx.graph import Graph


def holder_of(root: Module, path: str) -> tuple[Module | None, str]:
    """Return the module that the last name of ``path`` is an attribute of, or None, and that name."""
    *names, last = path.split(".")
    holder: object = root
    for name in names:
        holder = getattr(holder, name, None)
    return (holder if isinstance(holder, Module) else None), last


def assign(value: object, root: Module, path: str) -> None:
    """Set the attribute at ``path``; a tensor that is not a parameter becomes a buffer."""
    *names, last = path.split(".")
    holder: Any = root  # a module
    for name in names:
        below = getattr(holder, name, None)
        if below is None:
            below = Module()
            setattr(holder, name, below)
        holder = below
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        holder.register_buffer(last, value)
    else:
        setattr(holder, last, value)


def _targets(graph: Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op in ("get_attr", "call_module")]


def copy_named(source: Module, target: Module, graph: Graph) -> None:
    """Set in ``target`` the attributes of ``source`` that ``graph`` names; missing parents are created."""
    for path in _targets(graph):
        value: Any = source  # a module, then what it holds
        present: Any = target  # the same
        for name in path.split("."):
            value, present = getattr(value, name), getattr(present, name, None)
            if present is value:
                break
        else:
            assign(value, target, path)


def assign_named(values: dict[str, Any], target: Module, graph: Graph) -> None:  # of any type
    """Set in ``target`` the attributes that ``graph`` names, from ``values`` by path; RuntimeError for a
    missing one."""
    paths = _targets(graph)
    for path in paths:
        if path not in values:
            raise RuntimeError(
                f"The graph names {path!r}, which is not among the keys of root: {sorted(values)}. Add it"
                " there."
            )
    for path in sorted(dict.fromkeys(paths), key=lambda path: path.count(".")):
        assign(values[path], target, path)
