"""``compute_known``: replace calls on parameters and constants by their values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tenon.export.captured import CapturedGraph
from tenon.graph.graph import Node, Ref
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.creation.create import wrap


def compute_known(graph: CapturedGraph, chosen: Callable[[Node], bool]) -> None:
    """Replace the calls of ``graph`` that are ``chosen``, and whose value no run changes, by constants.

    A target chooses those that it cannot write, such as decoded weights. Calls without arguments, with an
    effect or with sizes that may change stay.
    """
    written = {write.target for write in graph.writes}
    constant: set[Ref] = set()
    values: dict[Ref, np.ndarray] = {}
    changes: dict[Ref, Ref] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        stored = node.kind == "input" and node.value is not None and node not in written
        if node.kind == "constant" or stored:
            constant.add(node.out())
        elif (
            node.kind == "call" and not node.effect and node.refs and constant.issuperset(node.refs)
            and node not in graph.symbolic
        ):  # fmt: skip
            constant.update(node.out(i) for i in range(len(node.avals)))
            if chosen(node):
                for index, aval in enumerate(node.avals):
                    new = Node("constant")
                    new.value, new.label, new.avals = _value(node.out(index), values), node.label, (aval,)
                    changes[node.out(index)] = new.out()
                    nodes.append(new)
                continue
        nodes.append(node)
    graph.nodes = nodes
    graph.replace(changes)


def _value(ref: Ref, values: dict[Ref, np.ndarray]) -> np.ndarray:
    """Return a value that no run changes, computed by tenon."""
    if ref not in values:
        node = ref.node
        if node.kind == "constant":
            values[ref] = np.asarray(node.value)
        elif node.kind == "input":
            values[ref] = np.asarray(node.value.detach().numpy())
        else:
            args = [wrap(_value(a, values)) if a.__class__ is Ref else a for a in node.args]
            with no_grad():
                result = node.op(*args, **node.attrs)
            results = result if isinstance(result, tuple | list) else (result,)
            for index, each in enumerate(results):
                array = np.ascontiguousarray(each.detach().numpy())
                values[node.out(index)] = array.reshape(tuple(each.shape))
    return values[ref]
