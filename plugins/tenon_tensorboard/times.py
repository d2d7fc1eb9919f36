"""Per-module op times of a training step, read from a trace."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import tenon

#: An event of a trace: a JSON object.
TraceEvent: TypeAlias = Mapping[str, Any]
#: Microseconds by module path and op.
Times = dict[tuple[str, str], float]


def times_of(trace: str | os.PathLike[str]) -> dict[str, Times]:
    """Microseconds per profiled step by phase, then by module path and op; TraceError if it is no trace.

    Phases are "forward" and "backward". Nested ops are attributed to the outermost; a fused kernel's time is
    divided among its source ops.
    """
    events = list(tenon.profiler.read_trace(trace)[1])
    steps = sum(1 for event in events if str(event.get("name", "")).startswith("ProfilerStep#")) or 1
    phases: dict[str, Times] = {"forward": {}, "backward": {}}
    for event in _outermost(events):
        args = event["args"]
        times = phases.get(args.get("Phase", ""))
        if times is None:
            continue
        names = args.get("Source ops") or [event["name"].removeprefix("tenon::")]
        modules = args.get("Source modules") or [args.get("Module", "")] * len(names)
        for module, name in zip(modules, names, strict=True):
            key = (module, name)
            times[key] = times.get(key, 0.0) + event["dur"] / len(names) / steps
    return phases


def _outermost(events: Iterable[TraceEvent]) -> Iterator[TraceEvent]:
    """Ops, gradient nodes and kernels that are not nested in another; runs of programs do not count."""
    spans = [e for e in events if e.get("cat") == "cpu_op" and "Program" not in e["args"]]
    ends: dict[int, float] = {}
    for event in sorted(spans, key=lambda e: (e["ts"], -e["dur"])):
        if event["ts"] >= ends.get(event["tid"], float("-inf")):
            ends[event["tid"]] = event["ts"] + event["dur"]
            yield event
