"""How many ranks an attempt has, and on which hosts: ``--min-ranks``, ``--max-ranks`` and ``--hosts``."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tenon.errors import LaunchError
from tenon.training.launching.hosts import Host, HostFile, Launcher, describe

PERIOD = 2.0
"""Seconds between two looks at the host file."""
CURRENT = 2.0
"""Seconds for which an answer counts."""
ASKING_PERIOD = 30.0
"""Seconds between two questions to hosts that did not answer."""


@dataclass(frozen=True)
class Place:
    """The ranks of an attempt; ``hosts`` is empty where the launcher decides where they run."""

    ranks: int
    hosts: tuple[Host, ...] = ()

    def __str__(self) -> str:
        return counted(self.ranks) + (f" on {describe(self.hosts)}" if self.hosts else "")


class Places:
    """Decides the place of each attempt: from ``low`` to ``high`` ranks, of a number that fits the run.

    ``unfit`` says why a number does not, and returns None for one that does. Without ``hosts`` there are
    ``high`` ranks until some are lost. With that file there are as many as the hosts that answer have room
    for.
    """

    def __init__(
        self,
        low: int,
        high: int | None,
        launcher: Launcher | None,
        hosts: Path | None = None,
        unfit: Callable[[int], str | None] = lambda ranks: None,
    ) -> None:
        self._launcher = launcher
        self._file = None if hosts is None else HostFile(hosts)
        self._lost: dict[str, int] = {}
        """Ranks that each host has fewer, as some were lost there, until the file changes or it returns."""
        self._away: set[str] = set()
        self._asked = -ASKING_PERIOD
        self._looked = 0.0
        self._seen: Place | None = None
        self._unfit = unfit
        self._low = low
        if high is None:
            assert self._file is not None  # the command takes no fewer options
            high = max(low, sum(host.slots for host in self._file.hosts))
            self._bounded = False
        else:
            self._bounded = True
        self._high = high
        if self._file is not None and self._largest(high) is None:
            raise LaunchError(f"no number of ranks from {low} to {high} fits the run: {unfit(high)}")

    @property
    def may_change(self) -> bool:
        """Whether hosts may come and go during an attempt."""
        return self._file is not None

    def next(self) -> Place | None:
        """The place of the next attempt; None if too few hosts answer now."""
        if self._file is None:
            return Place(self._high)
        if self._read(self._file) or time.monotonic() - self._asked > CURRENT:
            self._ask(self._file.hosts)
        return self._found(self._file)

    def missing(self) -> str:
        """What there is less of than needed, as a clause, where ``next`` is None."""
        assert self._file is not None  # without hosts there always is a place
        room = sum(host.slots for host in self._present(self._file))
        needed = next(n for n in itertools.count(self._low) if self._unfit(n) is None)  # there was one once
        reasons = [f"no answer from {', '.join(sorted(self._away))}"] if self._away else []
        reasons += [self._file.problem] if self._file.problem else []
        return "; ".join(
            [f"{self._file.path} has room for {counted(room)} of {needed} that are needed", *reasons]
        )

    def lose(self, place: Place, host: str) -> None:
        """Note that a rank was lost: there is one fewer where possible.

        ``host`` is the host's own name for itself; empty if it is unknown where the rank was.
        """
        if self._file is None:
            self._high = self._largest(place.ranks - 1) or place.ranks
            return
        self._ask(self._file.hosts)
        names = [each.name for each in place.hosts]
        if self._away.intersection(names):
            return  # a whole host has gone
        lost = next((name for name in names if _is_same(name, host)), names[-1])
        self._lost[lost] = self._lost.get(lost, 0) + 1
        if self._found(self._file) is None:
            self._lost.clear()

    def better(self, place: Place) -> Place | None:
        """Where to go on instead of ``place``: with more ranks, or without hosts that the file has lost.

        None if ``place`` is right, or if the host file has changed only just now: somebody may be editing it.
        """
        now = time.monotonic()
        if self._file is None or now - self._looked < PERIOD:
            return None
        self._looked = now
        changed = self._read(self._file)
        if changed or (self._away and now - self._asked > ASKING_PERIOD):
            used = {host.name for host in place.hosts}
            self._ask([host for host in self._file.hosts if host.name not in used])
        found = self._found(self._file)
        listed = {host.name for host in self._file.hosts}
        if found is None or (found.ranks <= place.ranks and all(h.name in listed for h in place.hosts)):
            found = None
        settled, self._seen = found == self._seen, found
        return found if settled else None

    def _read(self, file: HostFile) -> bool:
        """Read the host file again; return whether it lists other hosts."""
        changed = file.read()
        if changed:
            self._lost.clear()
            self._away &= {host.name for host in file.hosts}
            if not self._bounded:
                self._high = max(self._low, sum(host.slots for host in file.hosts))
        return changed

    def _ask(self, hosts: Sequence[Host]) -> None:
        """Find out which of ``hosts`` answer; one that answers again has all of its room again."""
        self._asked = time.monotonic()
        assert self._launcher is not None  # hosts are given
        answered = self._launcher.reachable(hosts)
        for name in answered & self._away:
            self._lost.pop(name, None)
        self._away = (self._away | {host.name for host in hosts}) - answered

    def _present(self, file: HostFile) -> list[Host]:
        """The hosts that answer, with the room that is left there."""
        rooms = [Host(host.name, host.slots - self._lost.get(host.name, 0)) for host in file.hosts]
        return [host for host in rooms if host.slots > 0 and host.name not in self._away]

    def _found(self, file: HostFile) -> Place | None:
        """The place with the most ranks on the hosts that answer; None if there are too few."""
        present = self._present(file)
        ranks = self._largest(min(self._high, sum(host.slots for host in present)))
        return None if ranks is None else Place(ranks, filled(present, ranks))

    def _largest(self, most: int) -> int | None:
        """The largest number of ranks that fits, up to ``most``."""
        return next((n for n in range(most, self._low - 1, -1) if self._unfit(n) is None), None)


def counted(ranks: int) -> str:
    """``"1 rank"`` or ``"2 ranks"``."""
    return "1 rank" if ranks == 1 else f"{ranks} ranks"


def filled(hosts: Sequence[Host], ranks: int) -> tuple[Host, ...]:
    """``hosts`` with the room that ``ranks`` ranks take, the first hosts first.

    >>> filled([Host("a", 4), Host("b", 4)], 6)
    (Host(name='a', slots=4), Host(name='b', slots=2))
    """
    taken = []
    for host in hosts:
        slots = min(host.slots, ranks)
        if slots:
            taken.append(Host(host.name, slots))
        ranks -= slots
    return tuple(taken)


def _is_same(name: str, host: str) -> bool:
    """Whether the host file's ``name`` is that of a host which calls itself ``host``."""
    return name == host or name.partition(".")[0] == host.partition(".")[0]
