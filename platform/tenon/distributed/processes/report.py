"""Format the report of a failed job, and elect the one rank that prints it.

Ranks often fail together: of the same bug, or as all notice the failure of one. A name in Linux's abstract
socket namespace can be bound by one process of a host only, and is released when the process ends: there is
no file to clean up and no message to wait for. Ranks on later nodes wait first, so that the abort by the
first node reaches them.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from types import TracebackType

NODE_DELAY = 0.3
LONGEST_DELAY = 0.9
REPORTING_TIME = 10.0
"""Seconds that the elected rank may take where cores are busy or the launcher reads slowly."""
WINNER_TIME = 1.0
"""Seconds for the abort by the elected rank to terminate the others."""
_POLL = 0.05


def address(name: str) -> str:
    """A name for a socket in Linux's abstract namespace, of this account and for tenon."""
    return f"\0tenon-{os.getuid()}-{name}"


def send(name: str, message: bytes = b"reported") -> bool:
    """Send a message to the socket of that name; return whether there is one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
        try:
            own.sendto(message, address(name))
        except OSError:
            return False
    return True


def note_early_report(parent: int) -> None:
    """Tell the early monitor of the launcher ``parent``, if there is one, that the job's end has a report."""
    if sys.platform == "linux":
        send(f"early-{parent}")


class Claim:
    """The right to print the report of ``job``, which one process of a host can hold."""

    _endpoint: socket.socket | int | None = None

    def __init__(self, job: str) -> None:
        self.job = job

    def take(self, node: int = 0) -> bool:
        """True in one process of a host; others wait as long as the holder needs to terminate them."""
        time.sleep(min(node * NODE_DELAY, LONGEST_DELAY))
        if self.grab():
            return True
        deadline = time.monotonic() + REPORTING_TIME
        while time.monotonic() < deadline and not self.grab():  # Becomes free when the holder's process ends.
            time.sleep(_POLL)
        time.sleep(WINNER_TIME)
        return False

    def grab(self) -> bool:
        """True in one process of a host, without waiting."""
        return self._bind() if sys.platform == "linux" else self._lock()

    def _bind(self) -> bool:
        endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            endpoint.bind(address(self.job))
        except OSError:
            endpoint.close()
            return False
        Claim._endpoint = endpoint  # Kept open until the process ends: closing it would release the name.
        return True

    def _lock(self) -> bool:
        import fcntl

        path = os.path.join(tempfile.gettempdir(), f"tenon-{os.getuid()}-{self.job}.lock")
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        Claim._endpoint = descriptor
        return True


def describe_failure(
    rank: int,
    size: int,
    host: str,
    step: int | None,
    error: BaseException,
    trace: TracebackType | None,
    thread: str | None = None,
) -> str:
    """The report of an uncaught exception, with its traceback, module path and thread."""
    lines = [_headline(rank, size, host, step, f"failed with {type(error).__name__}")]
    path = _module_path(error)
    if path is not None:
        lines.append(f"in module: {path or '(the model itself)'}\n")
    if thread is not None:
        lines.append(f"in thread: {thread}\n")
    lines += traceback.format_exception(type(error), error, trace)
    lines.append(_closing(rank, size, 1))
    return "".join(lines)


def describe_exit(
    rank: int, size: int, host: str, step: int | None, reason: str, code: int, details: str
) -> str:
    """The report of a rank that ends the job for ``reason``, a verb phrase; ``details`` are whole lines."""
    return _headline(rank, size, host, step, reason) + details + _closing(rank, size, code)


def describe_death(rank: int, size: int, host: str, step: int | None, reason: str, details: str) -> str:
    """The report of a rank that is gone, or lost its launcher, by the monitor of its host."""
    closing = f"=== tenon: ended all {size} ranks because rank {rank} cannot continue ===\n"
    return _headline(rank, size, host, step, reason) + details + closing


def _headline(rank: int, size: int, host: str, step: int | None, reason: str) -> str:
    at = "" if step is None else f", step {step}"
    return f"\n=== tenon: rank {rank} of {size} on host {host}{at} {reason} ===\n"


def _closing(rank: int, size: int, code: int) -> str:
    return f"=== tenon: ended all {size} ranks because rank {rank} cannot continue; exit status {code} ===\n"


def _module_path(error: BaseException) -> str | None:
    """The dotted path of the module in which ``error`` or one of its causes was raised; None if unknown."""
    for cause in _chain(error):
        path = getattr(cause, "tenon_module_path", None)
        if path is not None:
            return str(path)
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """``error``, its cause or context, that one's, and so on."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
