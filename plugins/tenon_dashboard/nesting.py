"""Process all spans of a lane at once, as ``sweep.py`` does span by span, if they nest properly.

In order of starts, a span's depth is the number of earlier spans that have not ended, and its parent the last
earlier span of depth one less. Spans that overlap otherwise, or nest a hundred deep, are left to
``sweep.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tenon_dashboard.collect import Lane
from tenon_dashboard.parts import (
    COMMUNICATION,
    DATA,
    DEEPEST,
    OPTIMIZER,
    OTHER,
    PARTS,
    STEP,
    WAIT,
    Level,
    Step,
    Swept,
    step_number,
)


@dataclass(slots=True)
class Nest:
    """Spans by start, the longest first of those that start together; ``levels`` are indices per depth."""

    start: np.ndarray
    duration: np.ndarray
    label: np.ndarray
    detail: np.ndarray
    parent: np.ndarray
    levels: list[np.ndarray]


def nested(lane: Lane) -> Nest | None:
    """Return the spans of a lane in order, with their parents (-1: none); None if they do not nest."""
    columns = [np.frombuffer(column, np.int64) for column in (lane.start, lane.duration)]
    columns += [np.frombuffer(column, np.int32) for column in (lane.label, lane.detail)]
    if not len(columns[0]):
        return None
    # Spans are written when they end, so of equal ones the later is the one around the other.
    backwards = [column[::-1] for column in columns]
    order = np.lexsort((-backwards[1], backwards[0]))
    start, duration, label, detail = (column[order] for column in backwards)
    end = start + duration
    depth = np.arange(len(start)) - np.searchsorted(np.sort(end), start, "right")
    empty = duration == 0
    if empty.any():  # an empty span does not end before itself, nor before those around it
        later = np.concatenate(([0], np.cumsum(empty)))
        depth += later[np.searchsorted(start, start, "right")] - later[:-1]
    deepest = int(depth.max())
    if deepest >= DEEPEST or int(depth.min()) < 0:
        return None
    levels = [np.flatnonzero(depth == level) for level in range(deepest + 1)]
    parent = np.full(len(start), -1)
    for above, here in pairwise(levels):
        before = np.searchsorted(above, here) - 1
        if before.size and before[0] < 0:
            return None
        parent[here] = above[before]
    inside = parent >= 0
    if (end[inside] > end[parent[inside]]).any():
        return None
    return Nest(start, duration, label, detail, parent, levels)


def add_nested(nest: Nest, parts: list[int], labels: list[tuple[str, str]], swept: Swept) -> list[Level]:
    """Add a lane's sums and steps to ``swept``; return its levels."""
    part = np.array(parts)[nest.label]
    step = np.full(len(part), -1)
    for depth, here in enumerate(nest.levels):
        if depth:
            parents = nest.parent[here]
            outer, step[here] = part[parents], step[parents]
            communicating = (part[here] == WAIT) | (part[here] == COMMUNICATION)
            inherits = (outer == DATA) | (((outer == OPTIMIZER) | (outer == COMMUNICATION)) & ~communicating)
            part[here[inherits]] = outer[inherits]
        opened = here[(part[here] == STEP) & (step[here] < 0)]
        step[opened] = opened
    part[part == STEP] = OTHER
    inside = nest.parent >= 0
    own = nest.duration - _summed(nest.parent[inside], nest.duration[inside], len(part))
    _steps(nest, labels, step, part, own, swept)
    _sums(nest, own, inside, swept)
    columns = (nest.start, nest.duration, nest.label, nest.detail)
    return [Level(*(column[here] for column in columns)) for here in nest.levels]


def _summed(where: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """Return sums of integers per index; exact below 2**53 ns, a hundred days."""
    return np.bincount(where, values, size).astype(np.int64)


def _steps(
    nest: Nest,
    labels: list[tuple[str, str]],
    step: np.ndarray,
    part: np.ndarray,
    own: np.ndarray,
    swept: Swept,
) -> None:
    within = np.flatnonzero(step >= 0)
    opened, index = np.unique(step[within], return_inverse=True)
    split = _summed(index * len(PARTS) + part[within], own[within], len(opened) * len(PARTS))
    for i, row in zip(opened.tolist(), split.reshape(-1, len(PARTS)).tolist(), strict=True):
        number = step_number(labels[int(nest.label[i])][1])
        swept.steps.append(Step(number, int(nest.start[i]), int(nest.duration[i]), row))


def _sums(nest: Nest, own: np.ndarray, inside: np.ndarray, swept: Swept) -> None:
    key = nest.label.astype(np.int64) << 32 | nest.detail
    kinds, index = np.unique(key, return_inverse=True)
    again = np.zeros(len(key), np.bool_)  # inside a span of the same name, whose total includes it
    again[inside] = nest.label[nest.parent[inside]] == nest.label[inside]
    calls = np.bincount(index)
    total = _summed(index, np.where(again, 0, nest.duration), len(kinds))
    selves = _summed(index, own, len(kinds))
    for kind, *row in zip(*(column.tolist() for column in (kinds, calls, total, selves)), strict=True):
        cell = swept.sums.setdefault((kind >> 32, kind & 0xFFFFFFFF), [0, 0, 0])
        for i, value in enumerate(row):
            cell[i] += value
