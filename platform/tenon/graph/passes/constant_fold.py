"""Constant folding."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.engine.op import Kind
from tenon.engine.quiet import quiet
from tenon.graph.graph import Graph, Node, Ref
from tenon.kernels.backend import Backend

#: Bytes up to which a result is kept: beyond, filling memory anew costs less than holding it for ever.
LARGEST = 1 << 16


def constant_fold(graph: Graph, backend: Backend) -> None:
    """Calls on constants alone, and arrays filled with one number, become constants if they are small."""
    made: dict[Ref, Any] = {}
    with quiet():
        for node in graph.calls:
            if node.effect or node.op.crosses or sum(a.nbytes for a in node.avals) > LARGEST:
                continue
            args = _known(node, made)
            if args is None:
                continue
            results = backend.kernels[node.op](*args, **node.attrs)
            several = results if isinstance(results, tuple | list) else (results,)
            for index, aval in enumerate(node.avals):  # hidden outputs that nobody kept are not there
                made[node.out(index)] = np.array(several[index], aval.dtype)
    changes: dict[Ref, Ref] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.out() not in made:
            nodes.append(node)
            continue
        for index in range(len(node.avals)):
            constant = Node("constant")
            constant.value, constant.avals = made[node.out(index)], (node.avals[index],)
            changes[node.out(index)] = constant.out()
            nodes.append(constant)
    graph.nodes = nodes
    graph.replace(changes)


def _known(node: Node, made: dict[Ref, Any]) -> list[Any] | None:
    """The arguments of ``node``, if all are known."""
    if node.op.kind is Kind.CREATE and node.op.name in ("new_full", "zeros_like"):
        aval = node.refs[0].aval
        return [np.broadcast_to(np.zeros((), aval.dtype), aval.shape)]
    args = []
    for a in node.args:
        if a.__class__ is not Ref:
            args.append(a)
        elif a in made:
            args.append(made[a])
        elif a.node.kind == "constant":
            args.append(a.node.value)
        else:
            return None
    return args
