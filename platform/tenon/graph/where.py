"""Where in the user's code something happens."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

_OURS = str(Path(__file__).parents[1])


def user_line() -> str:
    """``file:line`` of the innermost frame outside tenon."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
