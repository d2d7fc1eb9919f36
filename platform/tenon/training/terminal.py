"""Whether what a run prints reaches somebody's terminal, also through the pipe of ``mpirun``.

Under a launcher standard output is a pipe (MPICH) or a terminal of the launcher's own (Open MPI), and the
launcher copies it to its own. So the question is put to the launcher: on Linux its ``/proc`` entry says where
its standard output goes. Where that cannot be learnt (another host, another system) the answer is no, and a
run prints plain lines.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rich.console import Console

#: Processes that only pass output on: MPICH's and Open MPI's launchers and their helpers.
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
        """Leave the cursor alone: a job that is killed could not bring it back."""
        return False


def launcher_output() -> tuple[bool, Path | None]:
    """Whether a launcher started this process, and the terminal that it writes to, if it does."""
    found: Path | None = None
    try:
        process = os.getppid()
        while _field(process, "Name") in _LAUNCHERS:
            found = Path(os.readlink(f"/proc/{process}/fd/1"))
            process = int(_field(process, "PPid") or 0)
    except OSError:
        return found is not None, None
    return found is not None, found if found is not None and found.is_char_device() else None


def _field(process: int, name: str) -> str | None:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    return None


def _size(device: Path) -> os.terminal_size | None:
    """The size of the terminal ``device``; None if it is none (``/dev/null`` is a device too)."""
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
