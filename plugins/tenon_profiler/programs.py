"""The events of a run of a compiled program: its kernels, and spans around those of one phase.

A kernel has the phase of the ops that it was recorded from. Consecutive kernels of backward, or of an
optimizer, are in a span with the name that such a span has in eager programs, so that code that divides a
step's time need not distinguish programs. A kernel that communicates is a transfer; its collectives have
records of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from tenon.extend import Kind, Node, sources_of
from tenon_profiler.events import Arguments, Event
from tenon_profiler.shapes import UNKNOWN, type_name

#: A record: its kind, and the fields that ``tenon.profiler.observe.records`` documents for the kind.
Record: TypeAlias = Sequence[Any]
#: The names of spans around kernels, by their phase.
_SPANS = {"backward": "backward", "optimizer": "Optimizer.step#compiled"}


class Programs:
    """Converts records of program runs to events, which share arguments; ``wall`` is added to their times."""

    def __init__(self, wall: int) -> None:
        self._wall = wall
        self._args: dict[tuple[object, ...], Arguments] = {}

    def events(self, tid: int, record: Record) -> list[Event]:
        """Return the events of the run, of spans and of kernels."""
        _, name, steps, times, phase, ended = record
        wall = self._wall
        kernels: list[Event] = []
        previous: Node | None = None
        for line, begin, end in zip(times[1::2], times[::2], times[2::2], strict=False):
            nodes = steps[line]
            if nodes[0] is previous:  # the copies of a kernel are part of it
                kernels[-1].end = end + wall
                continue
            previous = nodes[0]
            communicates = previous.op.kind is Kind.COLLECTIVE
            kernel_phase = kernels[-1].args["Phase"] if communicates and kernels else phase
            key = (name, line, kernel_phase)
            args = self._args.get(key)
            if args is None:
                args = self._args[key] = described(nodes, kernel_phase)
            category = "tenon_transfer" if communicates else "cpu_op"
            kernels.append(Event(category, _title(nodes, args), tid, begin + wall, end + wall, args))
        spans = []
        for own, run in itertools.groupby(kernels, lambda kernel: kernel.args["Phase"]):
            if own in _SPANS:
                first, *_, last = [*run] * 2
                about = self._args.setdefault(("span", own), {"Phase": own})
                spans.append(Event("user_annotation", _SPANS[own], tid, first.begin, last.end, about))
        args = self._args.setdefault(("program", name, phase), {"Phase": phase, "Program": name})
        program = Event("cpu_op", "tenon::program", tid, times[0] + wall, ended + wall, args)
        return [program, *spans, *kernels]  # of events of equal times the first is the outer one


def _title(nodes: Sequence[Node], args: Arguments) -> str:
    if nodes[0].op.name == "fused":
        return "tenon::fused_" + "_".join(dict.fromkeys(args["Source ops"]))
    return "tenon::" + "_".join(args["Source ops"][:8])


def described(nodes: Sequence[Node], phase: str) -> Arguments:
    """Return the arguments of the event of a program line that executes the calls ``nodes``."""
    sources = sources_of(*nodes)
    avals = [a.aval for node in nodes for a in node.args if getattr(a, "aval", None) is not None]
    results = [a for node in nodes for a in node.avals]
    phases = [node.phase or phase for node in nodes]
    args: Arguments = {
        "Phase": max(dict.fromkeys(phases), key=phases.count), "Kernel": 1,
        "Source ops": [each.op for each in sources],
        "Input Dims": [list(a.shape) for a in avals],
        "Input type": [type_name(a.dtype) for a in avals],
        "Bytes": sum(math.prod(a.shape) * a.dtype.itemsize for a in [*avals, *results]),
    }  # fmt: skip
    flops = sum(_cost(node) for node in nodes)
    if flops:
        args["FLOPs"] = flops
    for key, values in (("Module", [n.module for n in nodes]), ("Source", [n.where for n in nodes])):
        if any(values):
            args[key] = next(v for v in values if v)
    if len(sources) > 1:
        args["Source modules"] = [each.module for each in sources]
        args["Source lines"] = [each.where for each in sources]
    return args


def source_texts(args: Arguments) -> list[str]:
    """Return for each source op of a kernel a text of the op, its line and its module.

    >>> source_texts({"Source ops": ["mul"], "Source": "model.py:12", "Module": "head"})
    ['mul at model.py:12 in head']
    """
    ops: list[str] = args.get("Source ops", [])
    modules = args.get("Source modules") or [args.get("Module", "")] * len(ops)
    lines = args.get("Source lines") or [args.get("Source", "")] * len(ops)
    return [
        op + (f" at {_short(line)}" if line else "") + (f" in {module}" if module else "")
        for op, module, line in zip(ops, modules, lines, strict=True)
    ]


def _short(line: str) -> str:
    return line.replace("\\", "/").rpartition("/")[2]


def _cost(node: Node) -> float:
    """Return the FLOPs of a call, 0 if they are unknown."""
    if node.op.name == "fused":  # one operation per element of the largest result, for each op
        largest = max((math.prod(a.shape) for a in node.avals), default=0)
        return float(largest * (node.label.count("+") + 1))
    operands = [getattr(a, "aval", a) for a in node.args]
    try:
        return float(node.op.cost(*operands, **node.attrs))
    except UNKNOWN:
        return 0.0
