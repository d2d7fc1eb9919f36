"""The check of a trace: trace again, compare the graphs, and compare results with the function's."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon.engine.op import Kind
from tenon.engine.types import Nested
from tenon.errors import CaptureError
from tenon.export.capture import Call
from tenon.export.captured import CapturedGraph
from tenon.export.jit.recorder import TracerWarning
from tenon.export.jit.recording import Recording
from tenon.graph.graph import shown_ref
from tenon.tensors.call_site import user_line
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.export.jit.program import Program


class TracingCheckError(CaptureError):
    """A function did something else when it was traced again."""


def check_graphs(recording: Recording, graph: CapturedGraph, calls: Sequence[Call]) -> list[list[Tensor]]:
    """Trace the function again for each of ``calls``, and compare with ``graph``; return the results."""
    _warn_of_random(graph)
    results = []
    for call in calls:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = recording.captured(call)
        _compare_graphs(graph, again)
        results.append(recording.results)
    recording.notes.clear()
    return results


def check_results(
    program: Program, owner: object, calls: Sequence[Call], expected: Sequence[list[Tensor]], tolerance: float
) -> None:
    """Run ``program`` on ``owner``, and compare with what the function returned."""

    def run(*args: Nested, **kwargs: Nested) -> Nested:
        result: Nested = program.function(owner, *args, **kwargs)
        return result

    for call, tensors in zip(calls, expected, strict=True):
        traced = Recording(run, call, strict=False)
        traced.first()  # undoes what it writes
        _compare_results(traced.results, tensors, tolerance)


def _warn_of_random(graph: CapturedGraph) -> None:
    names = graph.names()
    random = [node for node in graph.calls if node.op.kind is Kind.RANDOM]
    if random:
        listed = "".join(f"\t{names[node]} = {node.name}  # {node.where}\n" for node in random[:20])
        _warn(
            "Trace had nondeterministic nodes. Did you forget call .eval() on your model? Nodes:\n"
            f"{listed}This may cause errors in trace checking. To disable trace checking, "
            "pass check_trace=False to torch.jit.trace()"
        )


def _warn(text: str) -> None:
    file, _, line = user_line().rpartition(":")
    warnings.warn_explicit(text, TracerWarning, file, int(line or 0))


def _compare_graphs(first: CapturedGraph, second: CapturedGraph) -> None:
    """Raise TracingCheckError unless the graphs call the same ops; sizes may differ."""
    one, other = _lines(first), _lines(second)
    if one == other:
        return
    diff = "".join(f"\t\t{line}\n" for line in difflib.ndiff(one, other) if not line.startswith("?"))
    pairs = zip(one, other, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
    shown = [lines[at] if at < len(lines) else "nothing" for lines in (one, other)]
    raise TracingCheckError(
        "Tracing failed sanity checks!\nERROR: Graphs differed across invocations!\n\tGraph diff:\n"
        f"{diff}\tFirst diverging operator:\n\t\t- {shown[0]}\n\t\t+ {shown[1]}\n"
        "The function does something else each time, or for other inputs: compute with where() instead of "
        "branches, and keep no state in Python. check_trace=False leaves this check out."
    )


def _lines(graph: CapturedGraph) -> list[str]:
    """Return what a graph computes as text, without sizes and constants other than single numbers."""
    names = graph.names()
    lines = []
    for node in graph.nodes:
        if node.kind == "constant":
            lines.append(f"{names[node]} = constant" + (f" {node.value}" if node.value.ndim == 0 else ""))
        elif node.kind == "call":
            args = ", ".join(shown_ref(argument, names) for argument in node.args)
            lines.append(f"{names[node]} = {node.name}({args})  # {node.where}")
    lines.append(f"return {', '.join(shown_ref(ref, names) for ref in graph.outputs)}")
    return lines


def _compare_results(traced: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float) -> None:
    for number, (one, other) in enumerate(zip(traced, expected, strict=True), 1):
        problem = _difference(one.raw, other.raw, tolerance)
        if problem:
            _warn(
                f"Output nr {number}. of the traced function does not match the corresponding output of the "
                f"Python function. Detailed error:\n{problem}"
            )


def _difference(traced: np.ndarray, expected: np.ndarray, tolerance: float) -> str:
    """Return how two arrays differ; an empty text if they are close."""
    if traced.shape != expected.shape or traced.dtype != expected.dtype:
        return (
            f"{traced.dtype}{list(traced.shape)} is not the {expected.dtype}{list(expected.shape)} of the "
            "function."
        )
    kind = np.complex128 if traced.dtype.kind == "c" else np.float64
    a, b = traced.astype(kind), expected.astype(kind)
    wrong = ~np.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    if not wrong.any():
        return ""
    gaps = np.abs(a - b)
    return (
        f"Tensor-likes are not close!\n\nMismatched elements: {int(wrong.sum())} / {wrong.size} "
        f"({100 * wrong.mean():.1f}%)\nGreatest absolute difference: {np.nanmax(gaps)} (up to {tolerance} "
        "allowed)"
    )
