"""Lower a graph to calls that can be written; one error lists all that cannot.

Calls of weights that cannot be written, such as the decoding of 4-bit ones, are computed now.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon import ops
from tenon.extend import CapturedGraph, Composite, Node, compute_known, errors, lower
from tenon_target_numpy import library
from tenon_target_numpy.elementwise import MORE
from tenon_target_numpy.forms import FORMS, has_form
from tenon_target_numpy.program import read_values, reads_hidden
from tenon_target_numpy.texts import DTYPES


def ops_in_numpy() -> frozenset[str]:
    """Return the names of all ops of which some calls can be written."""
    written = library.functions()
    return frozenset(
        name
        for name in dir(ops)
        if name in FORMS
        or name in MORE
        or name in written
        or f"{name}_saved" in written
        or name == "clamp"
        or getattr(ops, name).expression_for((..., ..., ...), {}) is not None
    )


def in_numpy_ops(graph: CapturedGraph) -> CapturedGraph:
    """Return ``graph`` lowered to calls that can be written; LoweringError lists the others."""
    graph = graph.copy()
    compute_known(graph, _cannot_write)
    names = ops_in_numpy()
    try:
        result = lower(graph, names, rejected=_without_form)
    except errors.LoweringError as error:
        rest = lower(graph, names, rejected=_without_form, strict=False)
        problems = _problems(rest, [node for node in rest.calls if node.name in names])
        more = f" Not supported either: {'; '.join(problems)}.{_hint(rest)}" if problems else ""
        raise errors.LoweringError(f"{error}{more}") from None
    problems = _problems(result, result.calls)
    if problems:
        hint = _hint(result) or " Change them in the model, or export to another target."
        raise errors.LoweringError(
            f"the target numpy does not support {len(problems)} of the graph's calls and values: "
            f"{'; '.join(problems)}.{hint}"
        )
    return result


def _problems(graph: CapturedGraph, calls: Sequence[Node]) -> list[str]:
    """Return a text for each value of a dtype that runners lack, and each of ``calls`` without a form."""
    without = set(_without_form(graph))
    problems = [f"{node.name} ({_place(node)})" for node in calls if node in without]
    for node in graph.nodes:
        strange = sorted({a.dtype.name for a in node.avals} - DTYPES)
        if strange and (node.kind != "call" or node in calls):
            what = node.label if node.kind == "input" else node.name
            problems.append(f"{what} of {', '.join(strange)} ({_place(node)})")
    return list(dict.fromkeys(problems))


def _hint(graph: CapturedGraph) -> str:
    """Return what to do about values of bfloat16, or nothing."""
    if not any(aval.dtype.name == "bfloat16" for node in graph.nodes for aval in node.avals):
        return ""
    return " NumPy has no bfloat16: convert the model by .float(), or export to another target."


def _cannot_write(node: Node) -> bool:
    """Whether a call of a weight is computed now: no form, and no parts that may have one."""
    return not isinstance(node.op, Composite) and not has_form(node, False)


def _without_form(graph: CapturedGraph) -> list[Node]:
    compute_known(graph, _cannot_write)
    read = read_values(graph)
    return [node for node in graph.calls if not has_form(node, reads_hidden(node, read))]


def _place(node: Node) -> str:
    where = f" at {node.where}" if node.where else ""
    return f"{node.module or 'the function'}{where}"
