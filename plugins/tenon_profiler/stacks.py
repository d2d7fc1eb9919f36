"""Stacks with their time, as flame graph tools read them: ``outermost;...;innermost microseconds``."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tenon.extend import errors
from tenon_profiler.averages import function_events
from tenon_profiler.events import Event

METRICS = ("self_cpu_time_total", "self_cuda_time_total")


def export(events: Iterable[Event], path: str | os.PathLike[str], metric: str) -> None:
    """Write them to ``path``; TraceError where no event has a stack."""
    if metric not in METRICS:
        raise errors.ArgumentError(f"metric={metric!r} is none of {', '.join(METRICS)}.")
    sums: Counter[str] = Counter()
    found = False
    for event in function_events(events):
        if event.stack:
            found = True
            line = ";".join(frame.replace(" ", "_") for frame in [*reversed(event.stack), event.name])
            sums[line] += round(
                event.self_cpu_time_total if metric == METRICS[0] else event.self_device_time_total
            )
    if not found:
        raise errors.TraceError("no event has a stack. Profile with with_stack=True.")
    Path(path).write_text("".join(f"{line} {time}\n" for line, time in sums.items() if time))
