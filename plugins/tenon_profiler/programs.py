"""What a run of a compiled program becomes: its kernels, and spans around those of one phase.

A kernel knows the phase of the ops it was recorded from. Kernels of backward, or of an optimizer, that follow
each other are in a span of the name that such a span has in eager programs, so that whoever divides a step's
time need not know of programs. A kernel in which ranks exchange something is a transfer; the collectives
inside have records of their own.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from tenon.extend import Kind
from tenon_profiler.events import Event
from tenon_profiler.shapes import UNKNOWN, type_name

#: Spans around kernels of a phase.
_AROUND = {"backward": "backward", "optimizer": "Optimizer.step#compiled"}


class Programs:
    """Makes events of records of programs; keeps what runs share. ``wall`` is added to their times."""

    def __init__(self, wall: int) -> None:
        self._wall = wall
        self._args: dict[Any, dict[str, Any]] = {}

    def events(self, tid: int, record: Any) -> list[Event]:
        """Kernels, spans, and the run itself."""
        _, name, steps, times, phase, ended = record
        wall = self._wall
        kernels: list[Event] = []
        before: Any = None
        for line, begin, end in zip(times[1::2], times[::2], times[2::2], strict=False):
            nodes = steps[line]
            if nodes[0] is before:  # a kernel's copies go with it
                kernels[-1].end = end + wall
                continue
            before = nodes[0]
            exchanges = before.op.kind is Kind.COLLECTIVE
            around = kernels[-1].args["Phase"] if exchanges and kernels else phase
            key = (name, line, around)
            args = self._args.get(key)
            if args is None:
                args = self._args[key] = described(nodes, around)
            category = "tenon_transfer" if exchanges else "cpu_op"
            kernels.append(Event(category, _title(nodes, args), tid, begin + wall, end + wall, args))
        spans = []
        for own, run in itertools.groupby(kernels, lambda kernel: kernel.args["Phase"]):
            if own in _AROUND:
                first, *_, last = [*run] * 2
                about = self._args.setdefault(("span", own), {"Phase": own})
                spans.append(Event("user_annotation", _AROUND[own], tid, first.begin, last.end, about))
        args = self._args.setdefault(("program", name, phase), {"Phase": phase, "Program": name})
        whole = Event("cpu_op", "tenon::program", tid, times[0] + wall, ended + wall, args)
        return [whole, *spans, *kernels]  # of two of equal times the first is around the other


def _title(nodes: Any, args: dict[str, Any]) -> str:
    if nodes[0].op.name == "fused":
        return "tenon::fused_" + "_".join(dict.fromkeys(args["Source ops"]))
    return "tenon::" + "_".join(args["Source ops"][:8])


def described(nodes: Any, phase: str) -> dict[str, Any]:
    """What is said of a line of a program that makes these calls."""
    sources: list[str] = []
    for node in nodes:
        sources += node.label.split("+") if node.op.name == "fused" and node.label else [node.op.name]
    avals = [a.aval for node in nodes for a in node.args if getattr(a, "aval", None) is not None]
    made = [a for node in nodes for a in node.avals]
    phases = [node.phase or phase for node in nodes]
    args: dict[str, Any] = {
        "Phase": max(dict.fromkeys(phases), key=phases.count), "Kernel": 1, "Source ops": sources,
        "Input Dims": [list(a.shape) for a in avals],
        "Input type": [type_name(a.dtype) for a in avals],
        "Bytes": sum(math.prod(a.shape) * a.dtype.itemsize for a in [*avals, *made]),
    }  # fmt: skip
    flops = sum(_cost(node) for node in nodes)
    if flops:
        args["FLOPs"] = flops
    for key, values in (("Module", [n.module for n in nodes]), ("Source", [n.where for n in nodes])):
        if any(values):
            args[key] = next(v for v in values if v)
    return args


def _cost(node: Any) -> float:
    if node.op.name == "fused":  # one number of the largest operand, for each op
        largest = max((math.prod(a.shape) for a in node.avals), default=0)
        return float(largest * (node.label.count("+") + 1))
    given = [getattr(a, "aval", a) for a in node.args]
    try:
        return float(node.op.cost(*given, **node.attrs))
    except UNKNOWN:
        return 0.0
