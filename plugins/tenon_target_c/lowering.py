"""Lower a graph to ops that have an emitter, and compute its constant subexpressions.

Composites without an emitter are replaced by their parts (``tenon.extend.lower``); every remaining call has
an emitter or an expression, or is a view.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tenon import ops
from tenon.extend import CapturedGraph, Graph, Node, Op, Ref, errors, lower, no_grad, wrap
from tenon_target_c.emitters import EMITTERS, emittable
from tenon_target_c.families.elementwise import MORE, WHOLE, is_elementwise
from tenon_target_c.values import supported

#: View ops that copy if the strides require it.
_ALSO_COPIES = frozenset({"sum_to", "window_of"})


class Lowering:
    """A lowered copy of ``graph``."""

    def __init__(self, graph: CapturedGraph) -> None:
        copy = graph.copy()
        compute_known(copy)
        drop_unused(copy)
        self.graph = in_c_ops(copy)
        #: The arrays of values that no run changes.
        self.known = compute_known(self.graph)
        _remove_identities(self.graph)
        drop_unused(self.graph)


def ops_in_c() -> frozenset[str]:
    """Return the names of all ops of which some calls can be written in C."""
    named = {name: getattr(ops, name) for name in dir(ops)}
    return frozenset(
        name
        for name, op in named.items()
        if name in EMITTERS or name in MORE or name in WHOLE or op.view or _has_expression(op)
    )


def _has_expression(op: Op) -> bool:
    return op.expression_for((..., ..., ...), {}) is not None or op.name in ("clamp", "round")


def in_c_ops(graph: CapturedGraph) -> CapturedGraph:
    """Return ``graph`` lowered to calls that can be written in C; LoweringError lists the others."""
    result = lower(graph, ops_in_c(), rejected=_without_form)
    problems = [described(node) for node in _without_form(result)]
    problems += [
        f"{node.kind} {node.label} of {node.avals[0].dtype}"
        for node in result.nodes
        if node.kind in ("input", "constant") and not supported(node.avals[0])
    ]
    if problems:
        unique = list(dict.fromkeys(problems))
        raise errors.LoweringError(
            f"the target c has no form of {len(unique)} of the graph's calls and values:"
            f" {'; '.join(unique)}. Change them in the model, or export to another target."
        )
    return result


def _without_form(graph: CapturedGraph) -> list[Node]:
    return [node for node in graph.calls if not has_form(node)]


def has_form(node: Node) -> bool:
    """Whether a call, with its dtypes and attrs, can be written in C."""
    if not all(supported(a) for a in (*node.avals, *(r.aval for r in node.refs if not r.scalar))):
        return False
    if node.op.view and node.name not in _ALSO_COPIES:
        return True
    return emittable(node) or is_elementwise(node)


def compute_known(graph: Graph) -> dict[Ref, np.ndarray]:
    """Replace calls on constants by constants; return the arrays of all known values."""
    known: dict[Ref, np.ndarray] = {}
    changes: dict[Ref, Ref] = {}
    written = {w.target for w in graph.writes}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.kind == "constant":
            known[node.out()] = np.asarray(node.value)
        elif node.kind == "input" and node.value is not None and node not in written:
            known[node.out()] = np.asarray(node.value.detach().numpy())
        elif node.kind == "call" and not node.effect and node.refs:
            values = [known.get(changes.get(r, r)) for r in node.refs]
            if all(v is not None for v in values):
                for index, array in enumerate(_computed(node, known, changes)):
                    constant = Node("constant")
                    constant.value, constant.label = array, node.label
                    constant.avals = (type(node.avals[0])(array.shape, array.dtype),)
                    known[constant.out()] = array
                    changes[node.out(index)] = constant.out()
                    nodes.append(constant)
                continue
        nodes.append(node)
    graph.nodes = nodes
    graph.replace(changes)
    return known


def _computed(node: Node, known: dict[Ref, np.ndarray], changes: dict[Ref, Ref]) -> list[np.ndarray]:
    """Compute a call on known values."""
    args = [wrap(known[changes.get(a, a)]) if a.__class__ is Ref else a for a in node.args]
    with no_grad():
        result = node.op(*args, **node.attrs)
    results = result if isinstance(result, tuple | list) else (result,)
    arrays = [np.asarray(tensor.detach().numpy()) for tensor in results]
    return [np.ascontiguousarray(a).reshape(a.shape) for a in arrays]


def _remove_identities(graph: Graph) -> None:
    """Replace copies and aliases by their operands, as values never change."""
    changes: dict[Ref, Ref] = {}
    for node in graph.calls:
        position = 1 if node.name == "copy" else 0
        if node.name not in ("copy", "contiguous") and not node.op.identity:
            continue
        source = node.args[position]
        if source.__class__ is Ref and not source.scalar and (source.aval,) == node.avals:
            changes[node.out()] = source
    graph.replace(changes)


def described(node: Node) -> str:
    """Return a call as text: its op, dtypes, module and source line."""
    dtypes = sorted({a.dtype.name for a in [*node.avals, *(r.aval for r in node.refs if not r.scalar)]})
    place = f"in {node.module or 'the function'}" + (f" at {node.where}" if node.where else "")
    return f"{node.name} of {', '.join(dtypes)} ({place})"


def drop_unused(graph: Graph) -> None:
    """Remove calls, constants and parameters that no output and no write needs; arguments stay."""
    needed: set[Node] = {w.target for w in graph.writes} | {r.node for r in graph.roots()}
    used = []
    for node in reversed(graph.nodes):
        argument = node.kind == "input" and node.value is None
        if node in needed or argument or node.function == "input":
            needed |= {r.node for r in node.refs}
            used.append(node)
    graph.nodes = list(reversed(used))


def users_of(graph: Graph) -> dict[Ref, list[Node]]:
    """Return the readers of each value; a value that a run makes visible reads itself once more."""
    users = graph.users()
    for ref in graph.roots():
        users.setdefault(ref, []).append(ref.node)
    return users


def chain(node: Node, users: dict[Ref, list[Node]]) -> Iterator[Node]:
    """Yield the only reader of ``node``, the only reader of that one, and so on."""
    while True:
        readers = users.get(node.out(), [])
        if len(node.avals) != 1 or len(readers) != 1 or readers[0] is node:
            return
        node = readers[0]
        yield node
