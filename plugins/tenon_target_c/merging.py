"""Merge calls after a product into its kernel's epilogue.

Products by and sums with constants per channel (an inference batch norm) become part of a convolution's
filters and bias. An addition of an equally shaped array, then ReLU, are computed while the sums are in
registers.
"""

from __future__ import annotations

import numpy as np

from tenon import ops
from tenon.extend import Graph, Node, Ref
from tenon_target_c.lowering import Lowering, chain, users_of

_CONVOLUTIONS = frozenset({"conv", "convolution"})


def fold_channels(lowering: Lowering) -> None:
    """Fold constants per channel after convolutions into their filters and biases."""
    graph, known = lowering.graph, lowering.known
    users = users_of(graph)
    for node in list(graph.nodes):
        if node.name not in _CONVOLUTIONS or node.args[1] not in known or node.avals[0].dtype != np.float32:
            continue
        bias = node.args[2] if len(node.args) > 2 else None
        if bias is not None and bias not in known:
            continue
        weight = known[node.args[1]]
        shift = known[bias] if bias is not None else np.zeros(weight.shape[0], np.float32)
        last, exact = node, (weight.astype(np.float64), shift.astype(np.float64))
        for call in chain(node, users):
            changed = _applied(call, last.out(), exact, known, len(node.avals[0].shape))
            if changed is None or call.avals != node.avals:
                break
            last, exact = call, changed
        if last is not node:
            _replace(lowering, node, last, exact[0].astype(np.float32), exact[1].astype(np.float32))


def _applied(
    call: Node, value: Ref, parameters: tuple[np.ndarray, np.ndarray], known: dict[Ref, np.ndarray], rank: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return filters and bias after ``call`` of a convolution's ``value``; None if it is not per channel."""
    if call.name not in ("mul", "add", "sub") or len(call.args) != 2:
        return None
    first = call.args[0] == value
    other = call.args[1] if first else call.args[0]
    if other.__class__ is Ref and other not in known:
        return None
    number = known[other] if other.__class__ is Ref else np.asarray(other, np.float64)
    if number.ndim > rank:
        return None
    number = number.reshape((1,) * (rank - number.ndim) + number.shape)
    if any(s != 1 for a, s in enumerate(number.shape) if a != 1) or (call.name == "sub" and not first):
        return None
    weight, bias = parameters
    vector = np.broadcast_to(number.reshape(-1), bias.shape).astype(np.float64)
    if call.name == "mul":
        return weight * vector.reshape(-1, *(1,) * (weight.ndim - 1)), bias * vector
    return weight, bias + (vector if call.name == "add" else -vector)


def _replace(lowering: Lowering, node: Node, last: Node, weight: np.ndarray, bias: np.ndarray) -> None:
    graph = lowering.graph
    position = graph.nodes.index(node)
    constants = []
    for array, label in ((weight, "weight"), (bias, "bias")):
        constant = graph.constant(array, label)
        graph.nodes.remove(constant)
        graph.nodes.insert(position, constant)
        lowering.known[constant.out()] = array
        constants.append(constant.out())
    node.op, node.args = vars(ops)["convolution"], (node.args[0], *constants)
    graph.replace({last.out(): node.out()})


def merge_ends(graph: Graph) -> dict[Node, list[Node]]:
    """Return, for products that are followed by an addition or ReLU, the product and those calls."""
    users = users_of(graph)
    merged: dict[Node, list[Node]] = {}
    taken: set[Node] = set()
    for node in graph.nodes:
        if node.name not in _CONVOLUTIONS and node.name != "linear":
            continue
        if node.avals[0].dtype != np.float32:
            continue
        calls = [node]
        for call in chain(node, users):
            if call in taken or call.avals != node.avals:
                break
            if call.name == "add" and len(calls) == 1 and _adds_array(call, node):
                calls.append(call)
            elif call.name == "relu":
                calls.append(call)
                break
            else:
                break
        if len(calls) > 1:
            merged[node] = calls
            taken.update(calls)
    return merged


def _adds_array(call: Node, node: Node) -> bool:
    other = call.args[1] if call.args[0] == node.out() else call.args[0]
    return other.__class__ is Ref and not other.scalar and other.aval == node.avals[0] and other != node.out()
