"""A line search for the strong Wolfe conditions (Nocedal and Wright, Numerical Optimization, 3.5 and 3.6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tenon.extend import Tensor

#: Sufficient decrease, curvature, and the shortest interval worth searching, as in torch.optim.LBFGS.
DECREASE, CURVATURE, SHORTEST = 1e-4, 0.9, 1e-9


class Point(NamedTuple):
    """Loss, gradient and directional derivative at a step of ``size`` along the direction."""

    size: float
    loss: float
    gradient: Tensor
    slope: float
    """The derivative of the loss along the direction."""


def strong_wolfe(
    at: Callable[[float], Point], start: Point, size: float, longest: float, budget: int
) -> tuple[Point, int]:
    """Return a point that satisfies the strong Wolfe conditions, and the number of calls of ``at``.

    ``at`` is called at most ``budget + 1`` times; the best point so far is returned then. ``longest`` is the
    largest absolute element of the direction.
    """
    bracket, is_accepted, calls = _enclose(at, start, size, budget)
    if is_accepted:
        return bracket[0], calls
    return _zoom(at, start, bracket, longest, calls, budget)


def _flat(point: Point, start: Point) -> bool:
    return abs(point.slope) <= -CURVATURE * start.slope


def _high(point: Point, start: Point) -> bool:
    return point.loss > start.loss + DECREASE * point.size * start.slope


def _enclose(
    at: Callable[[float], Point], start: Point, size: float, budget: int
) -> tuple[list[Point], bool, int]:
    """Return two points that bracket an acceptable one; or one acceptable point, and True."""
    before, new = start, at(size)
    for tried in range(budget):
        if _high(new, start) or (tried > 1 and new.loss >= before.loss):
            return [before, new], False, tried + 1
        if _flat(new, start):
            return [new], True, tried + 1
        if new.slope >= 0:
            return [before, new], False, tried + 1
        nearest, farthest = new.size + 0.01 * (new.size - before.size), new.size * 10
        size = cubic_minimum(before, new, nearest, farthest)
        before, new = new, at(size)
    return [start, new], False, max(budget, 0) + 1


def _zoom(
    at: Callable[[float], Point], start: Point, bracket: list[Point], longest: float, calls: int, budget: int
) -> tuple[Point, int]:
    """Shrink ``bracket`` until one of its points is acceptable, or it is too short or the budget spent."""
    low, high = sorted(bracket, key=lambda point: point.loss)
    slow = False
    while calls <= budget and abs(high.size - low.size) * longest >= SHORTEST:
        least, most = sorted((low.size, high.size))
        size = cubic_minimum(low, high, least, most)
        margin = 0.1 * (most - least)
        near_an_end = min(most - size, size - least) < margin
        if near_an_end and (slow or size >= most or size <= least):
            size = most - margin if abs(size - most) < abs(size - least) else least + margin
            slow = False
        else:
            slow = near_an_end
        new = at(size)
        calls += 1
        if _high(new, start) or new.loss >= low.loss:
            high = new
            continue
        if _flat(new, start):
            return new, calls
        if new.slope * (high.size - low.size) >= 0:
            high = low
        low = new
    return low, calls


def cubic_minimum(a: Point, b: Point, least: float, most: float) -> float:
    """Return the minimiser in ``[least, most]`` of the cubic through both points; else the midpoint."""
    if a.size > b.size:
        a, b = b, a
    if a.size == b.size:
        return (least + most) / 2
    mixed = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.size - b.size)
    square = mixed * mixed - a.slope * b.slope
    if not square >= 0:
        return (least + most) / 2
    root = square**0.5
    below = b.slope - a.slope + 2 * root
    if below == 0:
        return (least + most) / 2
    size = b.size - (b.size - a.size) * ((b.slope + root - mixed) / below)
    return min(max(size, least), most)
