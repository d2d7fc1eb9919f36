"""``SlowRanks``: an occurrence of ranks that others wait for, as text and as a record; who is told of it.

``stragglers.py`` finds them.
"""

from __future__ import annotations

import contextlib
import os
import queue
from collections.abc import Iterator
from dataclasses import dataclass

from tenon.distributed.communication.calls import format_ranks

FULL = 0.7
"""The share of a core below which a rank that computes is said to use little of it."""
QUEUED = 0.1
"""The share of its time from which on a rank that has work, but no core, is said to be short of one."""


@dataclass(frozen=True, slots=True)
class SlowRanks:
    """An occurrence: others wait for ``ranks``, ``share`` of the time; ``node`` if these are all of it.

    ``others`` is the number of ranks that they are compared with: all others, or in a pipeline those of their
    ``stage``. ``data`` is the part of ``share`` that reading data explains. ``processor`` and ``queued`` are
    shares of the time in which the ranks were busy. ``seconds`` is how long it lasted, None where it begins.
    """

    ranks: tuple[int, ...]
    others: int
    stage: int
    host: str
    node: int | None
    share: float
    data: float
    processor: float
    queued: float
    place: str
    seconds: float | None = None

    @property
    def subject(self) -> str:
        """Who is slow."""
        if self.node is not None:
            return f"node {self.node} (host {self.host}, {format_ranks(self.ranks)})"
        return f"{format_ranks(self.ranks)} on host {self.host}"

    @property
    def part(self) -> str:
        """What explains most of it: "data" or "compute"."""
        return "data" if 2 * self.data >= self.share else "compute"

    @property
    def text(self) -> str:
        """The lines to print."""
        if self.seconds is not None:
            return f"tenon: {self.subject} is no longer slow, after {self.seconds:.0f} s"
        ranks = "the other rank" if self.others == 1 else f"the other {self.others} ranks"
        waiting = f"{ranks}{' of its stage' if self.stage else ''} wait{'s' if self.others == 1 else ''}"
        lines = [
            f"tenon: {self.subject} is slow: {waiting} for it {100 * self.share:.0f} % of the time",
            f"  part: {self._cause}",
        ]
        if self.place:
            lines.append(f"  most often at {self.place}")
        return "\n".join(lines)

    @property
    def _cause(self) -> str:
        """The part, and for computing what is known of its cores."""
        read = self.data / self.share
        if read > 0.8:
            return "reading data"
        text = "computing" if read < 0.2 else f"{100 * read:.0f} % of it reading data, the rest computing"
        if self.queued >= QUEUED:
            return (
                f"{text}; {100 * self.queued:.0f} % of its time it waits for a core that other threads have"
            )
        if self.processor < FULL:
            used = f"{100 * self.processor:.0f} % of a core"
            return f"{text}, with {used}: it sleeps, or waits for a disk or a network"
        return text

    @property
    def record(self) -> dict[str, float | str]:
        """The record for metrics; numbers only where it is over."""
        first: dict[str, float | str] = {"slow_rank": self.ranks[0]}
        if self.seconds is not None:
            return {**first, "slow_wait": 0.0, "slow_seconds": round(self.seconds, 1)}
        if self.node is not None:
            first["slow_node"] = self.node
        return {
            **first, "slow_wait": round(self.share, 3), "slow_data": round(self.data, 3),
            "slow_part": self.part, "slow_host": self.host, "slow_place": self.place,
        }  # fmt: skip


class Listener:
    """Takes occurrences between ``start`` and ``stop``, which nobody else prints then."""

    def __init__(self) -> None:
        self._found: queue.SimpleQueue[SlowRanks] = queue.SimpleQueue()
        self._before: Listener | None = None

    def start(self) -> None:
        """Listen instead of what listened before."""
        global _listener
        self._before, _listener = _listener, self

    def stop(self) -> None:
        """Let what listened before listen again."""
        global _listener
        _listener = self._before

    def put(self, found: SlowRanks) -> None:
        """Keep ``found`` for ``take``; any thread may call it."""
        self._found.put(found)

    def take(self) -> Iterator[SlowRanks]:
        """What has been found since the last call."""
        while not self._found.empty():
            yield self._found.get()


_listener: Listener | None = None


def say(found: SlowRanks) -> None:
    """Pass ``found`` on to the listener; without one, print it to standard error."""
    listener = _listener
    if listener is not None:
        listener.put(found)
    else:
        with contextlib.suppress(OSError):  # standard error is closed: no reason to end the job
            os.write(2, f"{found.text}\n".encode())
