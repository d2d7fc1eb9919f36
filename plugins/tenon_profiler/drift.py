"""How far a rank's clock is behind rank 0's, over time, by the collectives of both their traces.

Nobody leaves a collective's wait before all have come: what is to be added to a rank's clock is at least
when rank 0 came less when the rank left, and at most when rank 0 left less when the rank came. All leave at
about the same time, too, which decides where these leave room, as where one rank always comes last. A line
through such differences tells the drift. What was known when clocks were compared bounds it: clocks do not go
wrong by more than ``observe.DRIFT``.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenon.extend import observe

#: Stretches of time whose differences are looked at together.
_WINDOWS = 16

Waits = Mapping[Any, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Line:
    """Nanoseconds to add at a time ``t``: ``value + slope * (t - middle)``, within what is known."""

    value: float = 0.0
    slope: float = 0.0
    middle: float = 0.0
    #: When clocks were compared, and how far they may have been off then; None where they never were.
    at: int | None = None
    error: int = 0

    def __call__(self, time: float) -> float:
        """What to add to a clock that shows ``time``."""
        found = self.value + self.slope * (time - self.middle)
        if self.at is None:
            return found
        most = self.error + observe.DRIFT * abs(time - self.at)
        return min(max(found, -most), most)


def line(first: Waits, theirs: Waits, at: int | None = None, error: int = 0) -> Line:
    """From when rank 0 and another came to collectives and left them, by what tells collectives apart."""
    shared = [(*first[key], *theirs[key]) for key in first.keys() & theirs.keys()]
    if not shared:
        return Line(at=at, error=error)
    shared.sort(key=lambda each: each[3])
    size = -(-len(shared) // _WINDOWS)
    points = [_difference(shared[i : i + size]) for i in range(0, len(shared), size)]
    middle = statistics.fmean(time for time, _ in points)
    value, slope = statistics.median(gap for _, gap in points), 0.0
    if len(points) > 2:
        slope, value = statistics.linear_regression(
            [time - middle for time, _ in points], [g for _, g in points]
        )
        if abs(slope) > observe.DRIFT:
            value, slope = statistics.median(gap for _, gap in points), 0.0
    return Line(value, slope, middle, at, error)


def _difference(shared: list[tuple[int, int, int, int]]) -> tuple[float, float]:
    """A time, and the difference then: that of the ends, within what comings and ends leave possible."""
    middle = statistics.median(other for *_, other in shared)
    least = max(came - other for came, _, _, other in shared)
    most = min(left - other for _, left, other, _ in shared)
    if least > most:  # the drift within the stretch
        return middle, (least + most) / 2
    gap = statistics.median(left - other for _, left, _, other in shared)
    return middle, min(max(gap, least), most)
