"""PyTorch's path ``torch._C._profiler``: stacks, noted now and spelled out later."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

__all__ = ["gather_traceback", "symbolize_tracebacks"]


def gather_traceback(python: bool = True, script: bool = False, cpp: bool = False) -> traceback.StackSummary:
    """The caller's stack, innermost first; empty without ``python``, as there are no other frames here."""
    frames = traceback.extract_stack()[-2::-1] if python else []
    return traceback.StackSummary.from_list(frames)


def symbolize_tracebacks(to_symbolize: Sequence[traceback.StackSummary]) -> list[list[dict[str, object]]]:
    """Of each stack its frames as ``{"filename", "line", "name"}``."""
    return [
        [{"filename": f.filename, "line": f.lineno, "name": f.name} for f in stack] for stack in to_symbolize
    ]
