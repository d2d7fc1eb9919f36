"""The state of processes of this host, read from Linux's ``/proc``: ancestors and exit statuses.

This file imports nothing of tenon: the monitor (``host_monitor.py``) imports it alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

PROXY = "hydra_pmi_proxy"
OPEN_MPI = {"orterun", "orted", "prterun", "prte", "prted"}
LAUNCHERS = {"mpirun", "mpiexec", "mpiexec.hydra", PROXY} | OPEN_MPI
SHARED_MEMORY = "/dev/shm"
SEGMENT = f"{SHARED_MEMORY}/sm_segment."
SMALL = 128 << 20
"""Bytes of shared memory that MPI may use up."""
RANK_VARIABLES = ("PMI_RANK=", "OMPI_COMM_WORLD_RANK=")
"""The environment variables in which launchers tell a process its rank."""
FROM_LAUNCHER = (signal.SIGKILL, signal.SIGTERM)
"""Signals by which launchers end ranks."""
_EXIT_INFO = 1 << 3
_GET_INFO = 0xC040FF0B  # PIDFD_GET_INFO of 64 bytes


class Launcher(NamedTuple):
    """A process that launched ranks, the nearest first: ``handle`` is a pidfd of it.

    ``output`` is a descriptor for its standard error, -1 if that cannot be opened.
    """

    process: int
    name: str
    handle: int
    output: int


def launchers_of(process: int) -> list[Launcher]:
    """The launchers above ``process``, the nearest first, with descriptors of this process's own."""
    found = []
    for _ in range(6):
        process = int((_fields(process) or ["", "0"])[1])
        if process <= 1:
            break
        name = launcher_name(process)
        if name:
            try:
                handle = os.pidfd_open(process)
            except ProcessLookupError:
                break
            found.append(Launcher(process, name, handle, -1 if name == PROXY else _open_output(process)))
    return found


def is_launcher(process: int) -> bool:
    """Whether ``process`` starts the ranks of its host itself."""
    return bool(launcher_name(process))


def launcher_name(process: int) -> str:
    """The name of a process that is a launcher, empty if it is none. Open MPI 4 has ``orterun``."""
    name = _read(f"/proc/{process}/comm").strip()
    try:
        program = os.path.basename(os.readlink(f"/proc/{process}/exe"))
    except OSError:  # another user's
        program = ""
    if program in OPEN_MPI:
        return program
    return name if name in LAUNCHERS else ""


def children_of(process: int) -> list[int]:
    """The children of ``process``, those of all its threads."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            found += map(int, _read(f"/proc/{process}/task/{thread}/children").split())
    return found


def number_in(process: int, variables: Sequence[str]) -> int | None:
    """The number in the environment of ``process`` in the first that is set of ``variables`` (``"NAME="``);
    None if none is."""
    entries = _read(f"/proc/{process}/environ").split("\0")
    for variable in variables:
        for entry in entries:
            value = entry.removeprefix(variable)
            if entry.startswith(variable) and value.isdigit():
                return int(value)
    return None


def exit_status(descriptor: int, process: int) -> int | None:
    """The wait status of an ended process, from its pidfd or its zombie; None if the system does not tell."""
    import fcntl  # absent from Windows

    for _ in range(2):
        information = bytearray(64)
        struct.pack_into("<Q", information, 0, _EXIT_INFO)
        try:
            fcntl.ioctl(descriptor, _GET_INFO, information, True)
        except OSError:
            pass  # before Linux 6.13
        else:
            if struct.unpack_from("<Q", information)[0] & _EXIT_INFO:
                return int(struct.unpack_from("<i", information, 60)[0])
        if (status := zombie_status(process)) is not None:
            return status
    return None


def zombie_status(process: int) -> int | None:
    """The wait status of a process that nobody has waited for; None if it is not one."""
    fields = _fields(process)
    return int(fields[-1]) if fields and fields[0] == "Z" else None


def alive(process: int) -> bool:
    """Whether there is such a process, and it is not a zombie."""
    return (_fields(process) or ["Z"])[0] not in "ZX"


def stopped(process: int) -> bool:
    """Whether a signal such as SIGSTOP, or a debugger, has stopped the process."""
    return (_fields(process) or [""])[0] in ("T", "t")


def remove_segments(process: int) -> None:
    """Unlink Open MPI's shared memory of ``process``, as its launcher does, when that is gone."""
    for line in _read(f"/proc/{process}/maps").splitlines():
        path = line[line.find("/") :]
        if path.startswith(SEGMENT):  # the name of an unlinked one ends in " (deleted)"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _open_output(process: int) -> int:
    """A descriptor of one's own for the standard error of ``process``; -1 if it cannot be opened."""
    try:
        return os.open(f"/proc/{process}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:  # a socket, or another user's
        return -1


def _fields(process: int) -> list[str]:
    """The fields of ``/proc/<process>/stat`` from the state on; empty if there is no such process."""
    return _read(f"/proc/{process}/stat").rpartition(")")[2].split()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def first_cause(ended: Sequence[tuple[int, int | None, str]]) -> tuple[int, int | None, str]:
    """Return the rank to report of those in ``ended``, in order, each with its wait status and crash note.

    The first, unless a launcher explains its end and not that of another, as after an abort by MPI itself.
    """
    return min(ended, key=lambda each: consequence(*each[1:]))


def consequence(status: int | None, note: str) -> int:
    """Return how probably an end is the consequence of another: 0 for ends that no launcher causes."""
    if note:
        return 0
    if status is None:
        return 1
    if number := status & 0x7F:
        return 1 if number in FROM_LAUNCHER else 0
    # What MPI's error handler and programs that handle the launcher's SIGTERM exit with.
    return 2 if (status >> 8) - 128 in FROM_LAUNCHER else 0


def signal_name(number: int) -> str:
    """``"SIGSEGV"``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def killed_by(number: int) -> str:
    """``"was killed by SIGSEGV"``, with a hint if memory that ranks share may have run out.

    MPI has such memory in ``/dev/shm``, and writing beyond what there is of it kills a process.
    """
    reason = f"was killed by {signal_name(number)}"
    found = os.statvfs(SHARED_MEMORY) if os.path.exists(SHARED_MEMORY) else None
    size = 0 if found is None else found.f_blocks * found.f_frsize
    if number not in (signal.SIGBUS, signal.SIGSEGV) or not 0 < size <= SMALL:
        return reason
    return (
        f"{reason}, perhaps as {SHARED_MEMORY} has only {size >> 20} MB (a container gets a larger one by"
        " `docker run --shm-size=1g`)"
    )
