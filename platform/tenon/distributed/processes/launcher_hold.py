"""Suspend MPICH's launcher for half a second after a Ctrl-C, as it would kill the ranks at a second one.

A second Ctrl-C within that time would end them during the step that they finish (``training/signals.py``).

This file imports nothing of tenon: the monitor (``host_monitor.py``) imports it alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

REPEAT_SECONDS = 0.5
"""A second Ctrl-C within this time counts as a repetition of the first."""
SAVING_TIME = 60.0
"""The longest time in seconds for which the launcher is suspended after a Ctrl-C that was sent twice."""


class Hold:
    """Suspends MPICH's process ``proxy`` after a Ctrl-C, since it would kill the ranks at a second one.

    A second Ctrl-C shows in that ``mpirun`` closes its connection to the proxy.
    """

    def __init__(self, proxy: int, mpirun: int) -> None:
        self.proxy, self.mpirun = proxy, mpirun
        self._connections: set[str] = set()
        self._since = 0.0
        self._repeated = False
        self._over = not proxy

    @property
    def active(self) -> bool:
        """Whether the launcher is suspended now."""
        return bool(self._since) and not self._over

    def signalled(self, numbers: bytes) -> None:
        """The ranks received these signals: suspend the launcher at the first Ctrl-C."""
        if signal.SIGINT in numbers and not self._over and not self._since:
            self._since = time.monotonic()
            self._send(signal.SIGSTOP)
            self._connections = sockets(self.mpirun)

    def update(self, saved: bool) -> bool:
        """Resume the launcher when the run is ``saved``, or after half a second without a second Ctrl-C.

        Return whether a repeated Ctrl-C was delayed until the run was saved.
        """
        if not self.active:
            return False
        held = time.monotonic() - self._since
        if held < REPEAT_SECONDS or saved:
            self._repeated = bool(self._connections - sockets(self.mpirun))
        elif not self._repeated:
            self.release()
        if saved or held > SAVING_TIME:
            self.release()
        return saved and self._repeated

    def release(self) -> None:
        """Resume the launcher for good: another Ctrl-C then ends the job at once."""
        if self.active:
            self._over = True
            self._send(signal.SIGCONT)

    def _send(self, number: int) -> None:
        try:
            os.kill(self.proxy, number)
        except ProcessLookupError:
            self._over = True


def sockets(process: int) -> set[str]:
    """The sockets that ``process`` has open; none if that cannot be seen."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{process}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"/proc/{process}/fd/{name}"))
    return {target for target in found if target.startswith("socket:")}
