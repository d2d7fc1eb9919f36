"""Stacks with their times in the format of flame graph tools: ``outermost;...;innermost microseconds``."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tenon.extend import errors

if TYPE_CHECKING:
    from tenon_profiler.averages import FunctionEvent

METRICS = ("self_cpu_time_total", "self_cuda_time_total")


def export(events: Iterable[FunctionEvent], path: str | os.PathLike[str], metric: str) -> None:
    """Write the stacks of ``FunctionEvent``s to ``path``; TraceError if none has a stack."""
    if metric not in METRICS:
        raise errors.ArgumentError(f"metric={metric!r} is not one of {', '.join(METRICS)}.")
    sums: Counter[str] = Counter()
    any_stack = False
    for event in events:
        if event.stack:
            any_stack = True
            line = ";".join(frame.replace(" ", "_") for frame in [*reversed(event.stack), event.name])
            sums[line] += round(getattr(event, metric))
    if not any_stack:
        raise errors.TraceError("no event has a stack. Profile with with_stack=True.")
    Path(path).write_text("".join(f"{line} {time}\n" for line, time in sums.items() if time))
