"""Find ranks that the others wait for: what begins, and what is over, once each (``slow_ranks.py``).

Ranks that train together make the same collective calls, so one that is slow makes the others wait. Each
rank's ``Clock`` counts its waits, and its heartbeats carry the sums to rank 0. There ``Stragglers`` cuts the
time into slices in which every rank has made several calls. A rank's busy share of a slice is what it has not
waited; its excess is what it was busy beyond the median of the others: the share of the time that they wait
for it. A rank is slow if its excess is beyond the threshold in most slices of the window, so that a single
long wait, such as for an evaluation or a checkpoint on one rank, is none. Once slow, it is over when the
excess has been below half of the threshold in as many.

Stages of a pipeline wait for each other by nature: ranks are compared with those of the same stage
(``Clock.stage``). If all ranks of a node are slow, and others are not, the node is named.

``TENON_SLOW_RANKS`` is the threshold in percent of the time; 0 turns the search off.
``TENON_SLOW_RANKS_WINDOW`` is the window in seconds.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tenon.config import Config
from tenon.distributed.processes.heartbeat_table import Heartbeat
from tenon.distributed.processes.slow_ranks import SlowRanks

THRESHOLD = 15.0
"""Percent of the time that the others wait; of equal ranks it was 6 at most in most slices (ADR 0060)."""
WINDOW, SHORTEST = 10.0, 1.0
"""Seconds; each slice of the shortest window has two heartbeats."""
SLICES = 10
"""Slices of a window."""
MOST = 8
"""Slices of a window that decide."""
WAITS = 8
"""The least number of calls in a slice: in each, all ranks but the last one wait, on average."""
SAMPLES = 20
"""Heartbeats in a window, so that there are some in each slice."""


@dataclass(frozen=True, slots=True)
class Settings:
    """``threshold`` is a share of the time, 0 to find nothing; ``window`` is in seconds."""

    threshold: float = THRESHOLD / 100
    window: float = WINDOW


def settings_in(config: Config) -> Settings:
    """The settings in ``config``; ConfigError if one is not a number in its range."""
    threshold = config.number(
        "slow_ranks", THRESHOLD, "percent of the time. Write 15, or 0 to turn it off", most=100
    )
    meaning = f"seconds from {SHORTEST:g} on. Write {WINDOW:g}"
    return Settings(threshold / 100, config.number("slow_ranks_window", WINDOW, meaning, least=SHORTEST))


@dataclass(frozen=True, slots=True)
class Member:
    """Where a rank runs; ``node`` is an index."""

    host: str
    node: int


class Share(NamedTuple):
    """What a rank did in a slice, as shares of its time; ``processor`` counts cores.

    ``queued`` is the share in which the rank had work, but no core.
    """

    busy: float
    data: float
    processor: float
    queued: float


class _Slice(NamedTuple):
    """Heartbeats of all ranks at its begin and its end, and their shares of the time between."""

    before: Sequence[Heartbeat]
    after: Sequence[Heartbeat]
    shares: Sequence[Share]

    @property
    def begun(self) -> float:
        """When it began, in seconds."""
        return self.before[0].time / 1e9

    @property
    def ended(self) -> float:
        """When it ended, in seconds."""
        return self.after[0].time / 1e9


@dataclass(slots=True)
class _Open:
    """An occurrence that has been said, when it began, and when it was last seen."""

    said: SlowRanks
    begun: float
    seen: float


class Stragglers:
    """Judges the heartbeats of all ranks, which run on ``members``; one rank of a job does."""

    def __init__(self, members: Sequence[Member], settings: Settings) -> None:
        self._members, self._settings = members, settings
        self._latest: Sequence[Heartbeat] = ()
        self._from: Sequence[Heartbeat] | None = None
        self._slices: deque[_Slice] = deque(maxlen=SLICES)
        self._places: list[deque[str]] = [deque(maxlen=SAMPLES) for _ in members]
        self._open: list[_Open] = []

    def observe(self, beats: Sequence[Heartbeat]) -> list[SlowRanks]:
        """Take the latest heartbeats of all ranks, and return what has begun or is over."""
        if any(not beat.time or beat.ended for beat in beats):
            return []
        for places, old, new in zip(self._places, self._latest or beats, beats, strict=True):
            if new.time != old.time and not new.waiting and new.place:
                places.append(new.place)
        self._latest = beats
        before = self._from
        if before is None:
            self._from = beats
            return []
        # A quarter of a heartbeat less, as heartbeats have no regular times.
        least = (1 / SLICES - 1 / SAMPLES / 4) * self._settings.window * 1e9
        if any(new.time - old.time < least for old, new in zip(before, beats, strict=True)):
            return []
        waits = sum(new.waits - old.waits for old, new in zip(before, beats, strict=True))
        if waits < WAITS * (len(beats) - 1):
            return []
        shares = [_share(old, new) for old, new in zip(before, beats, strict=True)]
        self._slices.append(_Slice(before, beats, shares))
        self._from = beats
        if len(self._slices) < SLICES:
            return []
        return self._judge([beat.stage for beat in beats])

    def _judge(self, stages: Sequence[int]) -> list[SlowRanks]:
        excesses = self._excesses(stages)
        return [*self._close(excesses), *self._begin(excesses)]

    def _excesses(self, stages: Sequence[int]) -> list[list[float]]:
        """By how much each rank was busier than the median of the others of its stage, in each slice."""
        excesses: list[list[float]] = [[] for _ in stages]
        for stage in set(stages):
            ranks = [rank for rank, each in enumerate(stages) if each == stage]
            for taken in self._slices:
                ranks.sort(key=lambda rank: taken.shares[rank].busy)
                middle = (len(ranks) - 2) // 2
                for position, rank in enumerate(ranks):
                    # Without the rank itself, the ones behind it move forward by one.
                    median = ranks[middle + (middle >= position)] if len(ranks) > 1 else rank
                    excesses[rank].append(taken.shares[rank].busy - taken.shares[median].busy)
        return excesses

    def _close(self, excesses: Sequence[Sequence[float]]) -> Iterator[SlowRanks]:
        limit = self._settings.threshold / 2
        for each in list(self._open):
            above = [
                any(excesses[rank][index] > limit for rank in each.said.ranks)
                for index in range(len(self._slices))
            ]
            each.seen = max(
                [each.seen, *(s.ended for s, slow in zip(self._slices, above, strict=True) if slow)]
            )
            if above.count(False) >= MOST and not any(above[-2:]):
                self._open.remove(each)
                yield dataclasses.replace(each.said, seconds=each.seen - each.begun)

    def _begin(self, excesses: Sequence[Sequence[float]]) -> Iterator[SlowRanks]:
        limit = self._settings.threshold
        known = {rank for each in self._open for rank in each.said.ranks}
        new = {rank for rank, each in enumerate(excesses) if rank not in known and _exceeds(each, limit)}
        for ranks, node in self._grouped(new, known, excesses):
            first = min(index for index in range(len(self._slices)) if excesses[ranks[0]][index] > limit / 2)
            said = self._describe(ranks, node, first)
            self._open.append(_Open(said, self._slices[first].begun, self._slices[-1].ended))
            yield said

    def _grouped(
        self, new: set[int], known: set[int], excesses: Sequence[Sequence[float]]
    ) -> Iterator[tuple[list[int], int | None]]:
        """The ranks of ``new``: together those that are a node, whose other ranks nearly are slow, too."""
        stages = [beat.stage for beat in self._slices[-1].after]
        for node in sorted({self._members[rank].node for rank in new}):
            ranks = [rank for rank, member in enumerate(self._members) if member.node == node]
            compared = any(r not in ranks and stage == stages[ranks[0]] for r, stage in enumerate(stages))
            whole = compared and len(ranks) > 1 and not known.intersection(ranks)
            if whole and all(_exceeds(excesses[rank], self._settings.threshold / 2) for rank in ranks):
                yield ranks, node
            else:
                yield from (([rank], None) for rank in ranks if rank in new)

    def _describe(self, ranks: Sequence[int], node: int | None, first: int) -> SlowRanks:
        """Describe what ``ranks`` have been doing since slice ``first``, compared with the others."""
        old, new = self._slices[first].before, self._slices[-1].after
        shares = [_share(*both) for both in zip(old, new, strict=True)]
        stage = new[ranks[0]].stage
        others = [rank for rank, beat in enumerate(new) if rank not in ranks and beat.stage == stage]
        busy, data, processor, queued = (
            statistics.fmean(values) for values in zip(*(shares[rank] for rank in ranks), strict=True)
        )
        share = busy - statistics.median_low([shares[rank].busy for rank in others])
        read = data - statistics.median_low([shares[rank].data for rank in others])
        return SlowRanks(
            ranks=tuple(ranks),
            others=len(others),
            stage=stage,
            host=self._members[ranks[0]].host,
            node=node,
            share=share,
            data=min(max(read, 0.0), share),
            processor=processor / max(busy, 1e-9),
            queued=queued / max(busy, 1e-9),
            place=_most_often([place for rank in ranks for place in self._places[rank]]),
        )


def _share(old: Heartbeat, new: Heartbeat) -> Share:
    elapsed = new.time - old.time
    return Share(
        1 - (new.waited - old.waited) / elapsed,
        (new.data - old.data) / elapsed,
        (new.processor - old.processor) / elapsed,
        (new.queued - old.queued) / elapsed,
    )


def _exceeds(excesses: Sequence[float], limit: float) -> bool:
    return sum(excess > limit for excess in excesses) >= MOST


def _most_often(places: Sequence[str]) -> str:
    if not places:
        return ""
    place, count = Counter(places).most_common(1)[0]
    return f"{place} ({count} of {len(places)} samples)"
