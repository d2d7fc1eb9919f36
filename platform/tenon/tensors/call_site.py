"""Find the line of the user's program in the call stack."""

from __future__ import annotations

import linecache
import os
import sys
from pathlib import Path
from types import FrameType

_PACKAGE = Path(__file__).parents[1]
#: Prefixes of the file names of tenon's own code, its plugins' too, and of the code that it generates. Once
#: installed, the plugins lie beside the package, as ``tenon_...``; in a checkout in two folders.
OURS = (
    str(_PACKAGE), "<tenon",
    *(os.path.join(_PACKAGE.parents[1], folder, "tenon_") for folder in ("plugins", "backends")),
)  # fmt: skip


def user_line(*, text: bool = False) -> str:
    """``file:line`` of the innermost frame outside tenon, followed by the source line if ``text``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(OURS):
        frame = frame.f_back
    if frame is None:
        return ""
    name, number = frame.f_code.co_filename, frame.f_lineno
    return f"{name}:{number}" + (f": {linecache.getline(name, number).strip()}" if text else "")
