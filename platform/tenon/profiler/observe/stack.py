"""The current stack of the user's program: the frames outside of tenon, innermost first."""

from __future__ import annotations

import sys
from types import CodeType, FrameType

from tenon.tensors.call_site import OURS

_OURS: dict[CodeType, bool] = {}

Frame = tuple[CodeType, int]


def stack_here() -> tuple[Frame, ...]:
    """Return code objects and line numbers, innermost first, without tenon's own."""
    frames = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        ours = _OURS.get(code)
        if ours is None:
            ours = _OURS[code] = code.co_filename.startswith(OURS)
        if not ours:
            frames.append((code, frame.f_lineno))
        frame = frame.f_back
    return tuple(frames)
