"""The stack of the traced program, without the frames of tenon."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import CodeType, FrameType

_TENON = str(Path(__file__).resolve().parents[1])


def frames_of_program(starts: set[CodeType]) -> list[FrameType]:
    """Return the frames of the traced program, outermost first: those called from code in ``starts``."""
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code not in starts:
        if not frame.f_code.co_filename.startswith(_TENON):
            frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def format_frames(frames: list[FrameType]) -> str:
    """Return the frames as text."""
    summary = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames)
    return "".join(summary.format()).strip()
