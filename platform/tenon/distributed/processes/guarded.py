"""What the failure hooks (``failure.py``) use of a communicator, a watchdog and the monitor."""

from __future__ import annotations

from types import FrameType
from typing import NoReturn, Protocol


class Abortable(Protocol):
    """The part of a communicator that the failure hooks use."""

    host: str
    node: int
    job: str
    step: int | None

    @property
    def rank(self) -> int:
        """The rank of this process."""

    @property
    def size(self) -> int:
        """The number of ranks."""

    def claim_report(self) -> bool:
        """Whether this rank is the first of its node to report; called by one rank of the node at a time."""

    def kill(self, code: int) -> NoReturn:
        """Terminate all ranks with exit status ``code``."""

    def finish(self) -> None:
        """Announce the end of this rank's program, and wait until the programs of all ranks have ended."""


class Disarmable(Protocol):
    """The part of a watchdog that the failure hooks use."""

    def disarm(self) -> None:
        """Let this rank wait for the others without limit."""

    def stop(self) -> None:
        """Stop the watchdog's threads."""


class MonitorClient(Protocol):
    """The part of a ``MonitorConnection``, a rank's connection to the monitor, that the failure hooks use."""

    def may_report(self) -> bool:
        """Whether no other process has reported the end of this job."""

    def record(self, text: str, status: int) -> None:
        """Write the record of this rank's failure."""

    def note_exit(self, status: object, frame: FrameType | None) -> None:
        """Note a call of ``os._exit``."""

    def keep_records_in(self, folder: str) -> None:
        """Let records be written into that run folder."""

    def listen(self) -> int:
        """Let the monitor learn of signals; returns the former descriptor."""

    def stop_listening(self, former: int) -> None:
        """Undo ``listen``."""

    def end(self) -> None:
        """Note the end of the program."""

    def is_abandoned(self) -> bool:
        """Whether the launcher of this host's ranks has ended."""

    def forget(self) -> None:
        """In a forked child: send nothing to the monitor any more."""
