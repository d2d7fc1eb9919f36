"""Detect whether standard output ends at a terminal, also through the pipe of ``mpirun``.

Under a launcher standard output is a pipe (MPICH) or a terminal of the launcher's own (Open MPI), and the
launcher copies it to its own. So the launcher's standard output is examined: on Linux its ``/proc`` entry
names the file. Where that is impossible (another host, another system) the answer is no, and a run prints
plain lines.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rich.console import Console

#: Processes that only forward output: MPICH's and Open MPI's launchers and their helpers.
_LAUNCHERS = frozenset(
    ["mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy", "orterun", "orted", "prterun", "prte", "prted"]
)


class Screen(Console):
    """Standard output, with the size of the terminal that shows it."""

    def __init__(self) -> None:
        launched, device = launcher_output()
        size = _size(device) if device is not None else None
        if size is None:
            super().__init__(file=sys.stdout, highlight=False, force_terminal=False if launched else None)
        else:
            super().__init__(
                file=sys.stdout, highlight=False, force_terminal=True, width=size.columns, height=size.lines
            )

    def show_cursor(self, show: bool = True) -> bool:
        """Never hide the cursor: a killed job could not restore it."""
        return False


def launcher_output() -> tuple[bool, Path | None]:
    """Whether a launcher started this process, and the terminal that the launcher writes to, or None."""
    target: Path | None = None
    try:
        process = os.getppid()
        while _field(process, "Name") in _LAUNCHERS:
            target = Path(os.readlink(f"/proc/{process}/fd/1"))
            process = int(_field(process, "PPid") or 0)
    except OSError:
        return target is not None, None
    return target is not None, target if target is not None and target.is_char_device() else None


def _field(process: int, name: str) -> str | None:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    return None


def _size(device: Path) -> os.terminal_size | None:
    """The size of the terminal ``device``; None if it is not a terminal, as ``/dev/null``."""
    try:
        descriptor = os.open(device, os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return None
    try:
        size = os.get_terminal_size(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return size if size.columns else os.terminal_size((80, 24))
