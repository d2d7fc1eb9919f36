"""How far a rank's clock is behind rank 0's, over time, estimated from the collectives in both traces.

No rank leaves a collective's wait before all have entered it: the correction of a rank's clock is at least
rank 0's time of entering minus the rank's time of leaving, and at most rank 0's time of leaving minus the
rank's time of entering. All ranks leave at about the same time, which decides between these bounds, as where
one rank is always last. A line through such differences shows the drift. It is bounded by the comparison of
clocks before, as clocks drift by at most ``observe.DRIFT``.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tenon.extend import observe

#: The number of time windows, of which each gives one difference.
_WINDOWS = 16

#: The times of entering and leaving the wait of each collective, by the collective's key.
Waits: TypeAlias = Mapping[object, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Line:
    """Nanoseconds to add at a time ``t``: ``value + slope * (t - middle)``, within known bounds."""

    value: float = 0.0
    slope: float = 0.0
    middle: float = 0.0
    #: When clocks were compared, and the largest error then; None if they never were.
    at: int | None = None
    error: int = 0

    def __call__(self, time: float) -> float:
        """Return the correction of a clock that shows ``time``."""
        correction = self.value + self.slope * (time - self.middle)
        if self.at is None:
            return correction
        bound = self.error + observe.DRIFT * abs(time - self.at)
        return min(max(correction, -bound), bound)


def line(first: Waits, other: Waits, at: int | None = None, error: int = 0) -> Line:
    """Fit the correction of a rank's clock to the waits of rank 0 (``first``) and of the rank."""
    shared = [(*first[key], *other[key]) for key in first.keys() & other.keys()]
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
    """Return a time and the clocks' difference then: that of leaving times, within the bounds."""
    middle = statistics.median(other for *_, other in shared)
    lower = max(entered - other for entered, _, _, other in shared)
    upper = min(left - other for _, left, other, _ in shared)
    if lower > upper:  # the drift within the window
        return middle, (lower + upper) / 2
    gap = statistics.median(left - other for _, left, _, other in shared)
    return middle, min(max(gap, lower), upper)
