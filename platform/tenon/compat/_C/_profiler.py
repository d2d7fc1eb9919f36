"""PyTorch's module ``torch._C._profiler``: capture stacks, and convert them to frames later."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

__all__ = ["gather_traceback", "symbolize_tracebacks"]


def gather_traceback(python: bool = True, script: bool = False, cpp: bool = False) -> traceback.StackSummary:
    """Return the caller's stack, innermost first; empty without ``python``, as only Python frames exist."""
    frames = traceback.extract_stack()[-2::-1] if python else []
    return traceback.StackSummary.from_list(frames)


def symbolize_tracebacks(to_symbolize: Sequence[traceback.StackSummary]) -> list[list[dict[str, object]]]:
    """Return the frames of each stack as ``{"filename", "line", "name"}``."""
    return [
        [{"filename": f.filename, "line": f.lineno, "name": f.name} for f in stack] for stack in to_symbolize
    ]
