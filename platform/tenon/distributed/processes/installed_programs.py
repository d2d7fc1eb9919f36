"""Find programs that are installed with tenon, such as ``mpirun``."""

from __future__ import annotations

import os
import shutil
import sysconfig


def installed_program(name: str) -> str | None:
    """The path of a program next to this Python, or else on the PATH; None if there is none."""
    beside = os.path.join(sysconfig.get_path("scripts"), name)
    return beside if os.access(beside, os.X_OK) else shutil.which(name)
