"""Lower a graph to calls that have a form in ONNX, and write them.

Composites without a form are replaced by their parts (``tenon.extend.lower``); one error lists all remaining
calls.
"""

from __future__ import annotations

import importlib

from tenon import ops
from tenon.extend import CapturedGraph, Composite, Node, compute_known, errors, lower
from tenon_target_onnx.builder import DTYPES, Builder
from tenon_target_onnx.families.elementwise import is_elementwise, write_expression
from tenon_target_onnx.forms import FORMS, has_dtypes

for _family in (
    "integers",
    "indexing",
    "movement",
    "norms",
    "products",
    "recurrent",
    "reductions",
    "windows",
):
    importlib.import_module(f"tenon_target_onnx.families.{_family}")


def ops_in_onnx() -> frozenset[str]:
    """Return the names of all ops of which some calls have a form."""
    named = {name: getattr(ops, name) for name in dir(ops)}
    return frozenset(
        name for name, op in named.items()
        if name in FORMS
        or (hasattr(op, "expression_for") and op.expression_for((..., ..., ...), {}) is not None)
    )  # fmt: skip


def has_form(node: Node, opset: int) -> bool:
    """Whether a call can be written, with its dtypes and attrs."""
    if any(r.scalar for r in node.refs) or not has_dtypes(node):
        return False
    form = FORMS.get(node.name)
    if form is not None and form.opset <= opset and form.when(node):
        return True
    return is_elementwise(node, opset)


def check(graph: CapturedGraph) -> None:
    """Raise LoweringError for features that ONNX models lack: state that a run writes, and guards."""
    if graph.writes:
        names = ", ".join(write.target.label or "a tensor" for write in graph.writes[:3])
        more = f" and {len(graph.writes) - 3} more" if len(graph.writes) > 3 else ""
        raise errors.LoweringError(
            f"the target onnx cannot write state, but a run of this graph changes {names}{more}. Capture "
            "the model after model.eval(); for training steps export to the target c."
        )
    if graph.guards:
        places = ", ".join(dict.fromkeys(g.where or "an unknown place" for g in graph.guards))
        raise errors.LoweringError(
            f"the target onnx cannot check guards; Python decided by values at {places}. Compute with"
            " where()."
        )


def in_onnx_ops(graph: CapturedGraph, opset: int) -> CapturedGraph:
    """Return ``graph`` lowered to calls that have a form; LoweringError lists the others."""
    names = ops_in_onnx()
    graph = graph.copy()

    def cannot_write(node: Node) -> bool:
        return not isinstance(node.op, Composite) and not has_form(node, opset)

    compute_known(graph, cannot_write)
    failing: list[Node] = []

    def without_form(lowered: CapturedGraph) -> list[Node]:
        compute_known(lowered, cannot_write)
        failing[:] = [node for node in lowered.sized().calls if not has_form(node, opset)]
        return failing

    try:
        result = lower(graph, names, rejected=without_form)
    except errors.LoweringError as error:
        raise errors.LoweringError(_all_problems(graph, names, opset, str(error))) from None
    problems = _problems(result, failing, opset)
    if problems:
        raise errors.LoweringError(
            f"the target onnx does not support at opset {opset} {len(problems)} of the graph's calls and "
            f"values: {'; '.join(problems)}. Change them in the model, or export to another target."
        )
    return result


def _all_problems(graph: CapturedGraph, names: frozenset[str], opset: int, text: str) -> str:
    """Extend the text of an error: for ops of which some calls have a form, state why these calls have
    none."""
    failing = [
        node for node in graph.calls
        if node.name in names and not isinstance(node.op, Composite) and not has_form(node, opset)
    ]  # fmt: skip
    more = _problems(graph, failing, opset)
    return text + (f" Not supported at opset {opset} either: {'; '.join(more)}." if more else "")


def _problems(graph: CapturedGraph, failing: list[Node], opset: int) -> list[str]:
    """Return a text for each call and value without a form."""
    problems = [described(node, opset) for node in failing]
    problems += [
        f"{node.kind} {node.label} of {node.avals[0].dtype}"
        for node in graph.nodes
        if node.kind in ("input", "constant") and node.avals[0].dtype.name not in DTYPES
    ]
    return list(dict.fromkeys(problems))


def described(node: Node, opset: int) -> str:
    """Return a call as text: its op, dtypes, module and source line."""
    dtypes = sorted({a.dtype.name for a in [*node.avals, *(r.aval for r in node.refs if not r.scalar)]})
    place = f"in {node.module or 'the function'}" + (f" at {node.where}" if node.where else "")
    form = FORMS.get(node.name)
    needed = f", which needs opset {form.opset}" if form is not None and form.opset > opset else ""
    return f"{node.name} of {', '.join(dtypes)} ({place}{needed})"


def write_calls(b: Builder, graph: CapturedGraph) -> None:
    """Write the calls of a graph that has expressions for sizes that may change, in order."""
    for node in graph.calls:
        b.begin(node)
        form = FORMS.get(node.name)
        if form is not None and form.opset <= b.opset and form.when(node):
            written = form.write(b, node)
        else:
            written = write_expression(b, node)
        b.define(node, *((written,) if isinstance(written, str) else written))
