"""Bring a graph into calls that have a form in StableHLO.

Composites without a form are decomposed (``tenon.extend.lower``); one error names all calls that remain.
"""

from __future__ import annotations

import importlib

from tenon import ops
from tenon.extend import CapturedGraph, Composite, Node, compute_known, errors, lower
from tenon_target_stablehlo.builder import Builder, has_elements
from tenon_target_stablehlo.families.elementwise import is_elementwise, write_expression
from tenon_target_stablehlo.forms import FORMS, has_dtypes
from tenon_target_stablehlo.scalars import write_number

for _family in (
    "indexing",
    "integers",
    "losses",
    "movement",
    "pooling",
    "products",
    "recurrent",
    "reductions",
    "windows",
):
    importlib.import_module(f"tenon_target_stablehlo.families.{_family}")


def ops_in_stablehlo() -> frozenset[str]:
    """Return the names of all ops of which some calls have a form."""
    named = {name: getattr(ops, name) for name in dir(ops)}
    return frozenset(
        name for name, op in named.items()
        if name in FORMS or name in ("clamp", "once", "refused")
        or (hasattr(op, "expression_for") and op.expression_for((..., ..., ...), {}) is not None)
    )  # fmt: skip


def has_form(node: Node) -> bool:
    """Whether a call can be written, with its dtypes and attrs."""
    if not has_dtypes(node):
        return False
    form = FORMS.get(node.name)
    if form is not None and form.when(node):
        return True
    return is_elementwise(node)


def in_stablehlo_ops(graph: CapturedGraph) -> CapturedGraph:
    """Return ``graph`` in calls that have a form; LoweringError names all that have none."""
    names = ops_in_stablehlo()
    graph = graph.copy()

    def cannot_write(node: Node) -> bool:
        return not isinstance(node.op, Composite) and not has_form(node)

    compute_known(graph, cannot_write)
    failing: list[Node] = []

    def without_form(lowered: CapturedGraph) -> list[Node]:
        compute_known(lowered, cannot_write)
        failing[:] = [node for node in lowered.sized().calls if not has_form(node)]
        return failing

    try:
        result = lower(graph, names, rejected=without_form)
    except errors.LoweringError as error:
        raise errors.LoweringError(_all_problems(graph, names, str(error))) from None
    problems = _problems(result, failing)
    if problems:
        raise errors.LoweringError(
            f"the target stablehlo does not support {len(problems)} of the graph's calls and values: "
            f"{'; '.join(problems)}. Change them in the model, or export to another target."
        )
    drop_unused(result)
    return result


def _all_problems(graph: CapturedGraph, names: frozenset[str], text: str) -> str:
    """Extend the text of an error: for ops of which some calls have a form, state why these calls have
    none."""
    failing = [
        node for node in graph.calls
        if node.name in names and not isinstance(node.op, Composite) and not has_form(node)
    ]  # fmt: skip
    more = _problems(graph, failing)
    return text + (f" Not supported either: {'; '.join(more)}." if more else "")


def _problems(graph: CapturedGraph, failing: list[Node]) -> list[str]:
    """Return a text for each call and value without a form."""
    problems = [described(node) for node in failing]
    problems += [
        f"{node.kind} {node.label} of {node.avals[0].dtype}"
        for node in graph.nodes
        if node.kind in ("input", "constant") and not has_elements(node.avals[0].dtype)
    ]
    return list(dict.fromkeys(problems))


def described(node: Node) -> str:
    """Return a call as text: its op, dtypes, module and source line."""
    dtypes = sorted({a.dtype.name for a in [*node.avals, *(r.aval for r in node.refs if not r.scalar)]})
    place = f"in {node.module or 'the function'}" + (f" at {node.where}" if node.where else "")
    return f"{node.name} of {', '.join(dtypes)} ({place})"


def drop_unused(graph: CapturedGraph) -> None:
    """Remove calls, constants and parameters on which no output and no write depends; arguments stay."""
    needed: set[Node] = {w.target for w in graph.writes} | {r.node for r in graph.roots()}
    kept = []
    for node in reversed(graph.nodes):
        argument = node.kind == "input" and node.value is None
        if node in needed or argument or node.function == "input":
            needed |= {r.node for r in node.refs}
            kept.append(node)
    graph.nodes = list(reversed(kept))


def write_calls(b: Builder, graph: CapturedGraph) -> None:
    """Write the calls and numbers of a graph that has expressions for sizes that may change, in order."""
    for node in graph.nodes:
        if node.kind == "scalar" and node.function != "input":
            b.define(node, write_number(b, node))
        if node.kind != "call":
            continue
        b.begin(node)
        form = FORMS.get(node.name)
        written = form.write(b, node) if form is not None and form.when(node) else write_expression(b, node)
        b.define(node, *(written if isinstance(written, tuple) else (written,)))
