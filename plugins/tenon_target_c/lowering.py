"""Lower a graph to ops that have an emitter, and compute its constant subexpressions.

Composites without an emitter are replaced by their parts (``tenon.extend.lower``); every remaining call has
an emitter or an expression, or is a view.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tenon import ops
from tenon.extend import CapturedGraph, Graph, Node, Op, Ref, compute_known, errors, lower
from tenon_target_c.emitters import EMITTERS, emittable
from tenon_target_c.families.elementwise import MORE, WHOLE, is_elementwise
from tenon_target_c.values import supported

#: View ops that copy if the strides require it.
_ALSO_COPIES = frozenset({"sum_to", "window_of"})


class Lowering:
    """A lowered copy of ``graph``."""

    def __init__(self, graph: CapturedGraph) -> None:
        copy = graph.copy()
        compute_known(copy, lambda node: True)
        drop_unused(copy)
        self.graph = in_c_ops(copy)
        #: The arrays of values that no run changes.
        self.known = _known(self.graph)
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
    names = ops_in_c()
    try:
        result = lower(graph, names, rejected=_without_form)
    except errors.LoweringError as error:
        rest = lower(graph, names, rejected=_without_form, strict=False)
        problems = _problems(rest, names)
        more = f" Not supported either: {'; '.join(problems)}." if problems else ""
        raise errors.LoweringError(f"{error}{more}") from None
    problems = _problems(result, names)
    if problems:
        raise errors.LoweringError(
            f"the target c does not support {len(problems)} of the graph's calls and values:"
            f" {'; '.join(problems)}. Change them in the model, or export to another target."
        )
    return result


def _problems(graph: CapturedGraph, names: frozenset[str]) -> list[str]:
    """Return a text for each call of an op of ``names`` without a form, and each value of another dtype."""
    problems = [described(node) for node in _without_form(graph) if node.name in names]
    problems += [
        f"{node.kind} {node.label} of {node.avals[0].dtype}"
        for node in graph.nodes
        if node.kind in ("input", "constant") and not supported(node.avals[0])
    ]
    return list(dict.fromkeys(problems))


def _without_form(graph: CapturedGraph) -> list[Node]:
    return [node for node in graph.calls if not has_form(node)]


def has_form(node: Node) -> bool:
    """Whether a call, with its dtypes and attrs, can be written in C."""
    if not all(supported(a) for a in (*node.avals, *(r.aval for r in node.refs if not r.scalar))):
        return False
    if node.op.view and node.name not in _ALSO_COPIES:
        return True
    return emittable(node) or is_elementwise(node)


def _known(graph: CapturedGraph) -> dict[Ref, np.ndarray]:
    """Replace calls whose value no run changes by constants; return the arrays of all such values."""
    compute_known(graph, lambda node: True)
    written = {write.target for write in graph.writes}
    known: dict[Ref, np.ndarray] = {}
    for node in graph.nodes:
        if node.kind == "constant":
            known[node.out()] = np.asarray(node.value)
        elif node.kind == "input" and node.value is not None and node not in written:
            known[node.out()] = np.asarray(node.value.detach().numpy())
    return known


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
