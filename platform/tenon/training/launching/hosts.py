"""Host files, and the launchers' options that place ranks on hosts.

A host file has one host a line: ``node1:4`` as MPICH writes it, or ``node1 slots=4`` as Open MPI does; a line
without a number is one rank. ``#`` begins a comment.
"""

from __future__ import annotations

import concurrent.futures
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tenon.config import process_environment
from tenon.distributed.processes.installed_programs import installed_program
from tenon.errors import LaunchError

ANSWER_TIME = 20.0
"""Seconds that a host gets to run a program that does nothing."""
AT_ONCE = 16
"""Hosts that are asked at the same time."""
_LINE = re.compile(
    r"([A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\])(?::(\d{1,6})|\s+slots\s*=\s*(\d{1,6}))?"
)
_LARGEST = 1 << 20


class Host(NamedTuple):
    """A host, and the number of ranks that it has room for."""

    name: str
    slots: int


class HostFile:
    """The hosts that a file lists, read again whenever asked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hosts = self._read()
        """The hosts when the file could last be read."""
        self.problem = ""
        """Why the file could not be read the last time; empty if it could."""

    def read(self) -> bool:
        """Read the file again; return whether it lists other hosts. What cannot be read changes nothing."""
        before = self.hosts
        try:
            self.hosts, self.problem = self._read(), ""
        except LaunchError as error:
            self.problem = str(error)
        return self.hosts != before

    def _read(self) -> tuple[Host, ...]:
        try:
            with open(self.path, encoding="utf-8") as file:
                return parse(file.read(_LARGEST), str(self.path))
        except FileNotFoundError:
            raise LaunchError(f"there is no host file {str(self.path)!r}.") from None
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise LaunchError(f"cannot read the host file {str(self.path)!r}: {reason}.") from None


def parse(text: str, where: str = "the host file") -> tuple[Host, ...]:
    """The hosts in the text of a host file; LaunchError, with the line, for anything else.

    >>> parse("node1:4\\nnode2 slots=2  # the small one\\nnode3\\n")
    (Host(name='node1', slots=4), Host(name='node2', slots=2), Host(name='node3', slots=1))
    """
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        match = _LINE.fullmatch(content)
        if match is None:
            raise LaunchError(
                f"{where}, line {number}: {content[:80]!r} is no host. Write node1:4, or node1"
                " slots=4, one a line."
            )
        if match[1] in found:
            raise LaunchError(f"{where}, line {number}: {match[1]} is listed twice. Give it one line.")
        found[match[1]] = int(match[2] or match[3] or 1)
    return tuple(Host(name, slots) for name, slots in found.items() if slots)


def describe(hosts: Sequence[Host]) -> str:
    """The hosts as a user writes them, shortened after eight.

    >>> describe([Host("node1", 4), Host("node2", 2)])
    'node1:4, node2:2'
    """
    more = f" and {len(hosts) - 8} more" if len(hosts) > 8 else ""
    return ", ".join(f"{host.name}:{host.slots}" for host in hosts[:8]) + more


class Launcher:
    """The program that starts ranks, by its command line; ``mpirun`` if that is None."""

    def __init__(self, command: str | None = None) -> None:
        self.command = find_launcher(command)
        self._option: str | None = None

    def start(self, ranks: int, hosts: Sequence[Host] = ()) -> list[str]:
        """The command line that starts ``ranks`` ranks, on ``hosts`` if there are any."""
        placed = [self._hosts_option(), ",".join(f"{h.name}:{h.slots}" for h in hosts)] if hosts else []
        return [*self.command, *placed, "-n", str(ranks)]

    def reachable(self, hosts: Sequence[Host]) -> set[str]:
        """The names of the hosts on which a program can be started now."""
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(self._answers, hosts))
        return {host.name for host, answered in zip(hosts, answers, strict=True) if answered}

    def _answers(self, host: Host) -> bool:
        try:
            done = subprocess.run(
                [*self.start(1, [Host(host.name, 1)]), "true"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=ANSWER_TIME,
                env=process_environment(),
                start_new_session=True,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0

    def _hosts_option(self) -> str:
        """MPICH's or Open MPI's option for a list of hosts; LaunchError for another launcher."""
        if self._option is None:
            try:
                done = subprocess.run(
                    [*self.command, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                    timeout=ANSWER_TIME, env=process_environment(),
                )  # fmt: skip
                version = done.stdout + done.stderr
            except (OSError, subprocess.TimeoutExpired) as error:
                raise LaunchError(f"cannot run {shlex.join(self.command)} --version: {error}") from None
            if "HYDRA" in version:
                self._option = "-hosts"
            elif "Open MPI" in version:
                self._option = "--host"
            else:
                raise LaunchError(
                    f"--hosts places ranks by MPICH's or Open MPI's mpirun, and {shlex.join(self.command)} is"
                    f" neither: it answers --version with {version.strip()[:80]!r}. Leave out --hosts, and"
                    " let the launcher place the ranks."
                )
        return self._option


def find_launcher(command: str | None = None) -> list[str]:
    """The command line of the launcher: ``command``, or ``mpirun`` next to this Python, or on the PATH."""
    if command is not None:
        return shlex.split(command)
    path = installed_program("mpirun")
    if path is None:
        raise LaunchError(
            "mpirun was found neither next to this Python nor on the PATH. Run: pip install"
            " 'tenon-platform[mpich]', or name another launcher with --mpirun."
        )
    return [path]
