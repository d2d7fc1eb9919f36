"""Find the line of the user's program in the call stack."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import FrameType

#: Prefixes of the file names of tenon's own code and of the code that it generates.
OURS = (str(Path(__file__).parents[1]), "<tenon")


def user_line(*, text: bool = False) -> str:
    """``file:line`` of the innermost frame outside tenon, followed by the source line if ``text``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(OURS):
        frame = frame.f_back
    if frame is None:
        return ""
    name, number = frame.f_code.co_filename, frame.f_lineno
    return f"{name}:{number}" + (f": {linecache.getline(name, number).strip()}" if text else "")
