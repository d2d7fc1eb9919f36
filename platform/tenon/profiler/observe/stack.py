"""Where in the user's program we are: the frames outside of tenon, innermost first."""

from __future__ import annotations

import sys
from types import CodeType, FrameType

from tenon.tensors.where import OURS

_OURS: dict[CodeType, bool] = {}

Frame = tuple[CodeType, int]


def stack_here() -> tuple[Frame, ...]:
    """Code objects and lines, without tenon's own."""
    found = []
    frame = sys._getframe(1)
    step: FrameType | None = frame
    while step is not None:
        code = step.f_code
        ours = _OURS.get(code)
        if ours is None:
            ours = _OURS[code] = code.co_filename.startswith(OURS)
        if not ours:
            found.append((code, step.f_lineno))
        step = step.f_back
    return tuple(found)
