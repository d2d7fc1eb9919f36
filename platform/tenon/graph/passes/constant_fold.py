"""Constant folding."""

from __future__ import annotations

import numpy as np

from tenon.engine.op import Kind
from tenon.engine.quiet import quiet
from tenon.engine.types import Array, Operand
from tenon.graph.graph import Graph, Node, Ref
from tenon.kernels.backend import Backend

#: Maximum size in bytes of a folded result: larger ones cost less to compute in each run than to store.
LARGEST = 1 << 16


def constant_fold(graph: Graph, backend: Backend) -> None:
    """Replace calls on constants, and arrays filled with one number, by constants if they are small."""
    folded: dict[Ref, Array] = {}
    with quiet():
        for node in graph.calls:
            if node.effect or node.op.crosses or sum(a.nbytes for a in node.avals) > LARGEST:
                continue
            args = _constant_arguments(node, folded)
            if args is None:
                continue
            results = backend.kernel_for(node.op, args)(*args, **node.attrs)
            arrays = results if isinstance(results, tuple | list) else (results,)
            for index, aval in enumerate(node.avals):  # there may be no array for hidden outputs
                folded[node.out(index)] = np.array(arrays[index], aval.dtype)
    changes: dict[Ref, Ref] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.out() not in folded:
            nodes.append(node)
            continue
        for index in range(len(node.avals)):
            constant = Node("constant")
            constant.value, constant.avals = folded[node.out(index)], (node.avals[index],)
            changes[node.out(index)] = constant.out()
            nodes.append(constant)
    graph.nodes = nodes
    graph.replace(changes)


def _constant_arguments(node: Node, folded: dict[Ref, Array]) -> list[Operand] | None:
    """Return the arguments of ``node``; None unless all are constants."""
    if node.op.kind is Kind.CREATE and node.op.name in ("new_full", "zeros_like"):
        aval = node.refs[0].aval
        return [np.broadcast_to(np.zeros((), aval.dtype), aval.shape)]
    args = []
    for a in node.args:
        if a.__class__ is not Ref:
            args.append(a)
        elif a in folded:
            args.append(folded[a])
        elif a.node.kind == "constant":
            args.append(a.node.value)
        else:
            return None
    return args
