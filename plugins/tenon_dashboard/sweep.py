"""Process the spans of a lane in order of time: depth, self time, and the part of the step each belongs to.

Every instant of a step belongs to the innermost span around it, and that span to one part
(docs/guide/profiler.md, "Where a step's time goes"). The result are columns per depth, from which the
timeline takes windows.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon_dashboard.collect import LONGEST_SPAN, Collected, Lane
from tenon_dashboard.nesting import add_nested, nested
from tenon_dashboard.parts import (
    COMMUNICATION,
    DATA,
    DEEPEST,
    OPTIMIZER,
    OTHER,
    STEP,
    WAIT,
    Level,
    Step,
    Swept,
    part_of,
    step_number,
)

#: Nanoseconds by which a span may begin before its neighbour ends, as both were rounded.
_ROUNDING = 2


def sweep(collected: Collected) -> Swept:
    """Process all lanes of a file."""
    parts = [part_of(*label) for label in collected.labels]
    swept = Swept()
    for key, lane in collected.lanes.items():
        nest = nested(lane)
        levels = add_nested(nest, parts, collected.labels, swept) if nest else None
        swept.levels[key] = levels or walk(lane, parts, collected.labels, swept)
    swept.steps.sort(key=lambda step: step.start)
    return swept


def ordered(lane: Lane) -> Sequence[int]:
    """Return the indices of a lane's spans by start; of those that start together, the longest first.

    Spans are written when they end, so of equal ones the later one is around the other.
    """
    keys = [begin * LONGEST_SPAN - length for begin, length in zip(lane.start, lane.duration, strict=True)]
    return sorted(reversed(range(len(keys))), key=keys.__getitem__)


def one_step(collected: Collected) -> list[Step]:
    """Return the step to assume for a file without steps: its busiest lane from begin to end."""
    lanes = sorted(collected.lanes.values(), key=lambda lane: len(lane.start))
    if not lanes or not lanes[-1].start:
        return []
    lane = lanes[-1]
    first, end = min(lane.start), max(map(int.__add__, lane.start, lane.duration))
    around = Lane(lane.name)
    around.start.append(first)
    around.duration.append(min(end - first, LONGEST_SPAN - 1))
    around.label.append(len(collected.labels))
    around.detail.append(0)
    for name in ("start", "duration", "label", "detail"):
        getattr(around, name).extend(getattr(lane, name))
    labels = [*collected.labels, ("user_annotation", "ProfilerStep#0")]
    inside = Swept()
    walk(around, [part_of(*label) for label in labels], labels, inside)
    return inside.steps[:1]


def walk(lane: Lane, parts: list[int], labels: list[tuple[str, str]], swept: Swept) -> list[Level]:
    """Add a lane's sums and steps to ``swept``, however its spans overlap; return its levels."""
    sums, levels = swept.sums, [Level()]
    starts, durations, label_of, detail_of = lane.start, lane.duration, lane.label, lane.detail
    step: Step | None = None
    step_depth = 0
    # One entry per open span: its end, nanoseconds of what nests directly inside, and the rest.
    ends: list[int] = []
    inner: list[int] = []
    open_: list[tuple[int, int, list[int], int]] = []  # (length, part, sums, label)

    def close() -> None:
        nonlocal step
        ends.pop()
        length, part, cell, _ = open_.pop()
        own = length - inner.pop()
        cell[2] += own
        if step is not None:
            step.parts[part] += own
            if len(open_) == step_depth:
                step = None

    for i in ordered(lane):
        begin, length, label = starts[i], durations[i], label_of[i]
        while ends and (ends[-1] <= begin or (ends[-1] - begin <= _ROUNDING and begin + length > ends[-1])):
            close()
        part = parts[label]
        while ends and part == STEP and ends[-1] < begin + length:
            close()  # torch.profiler's steps begin inside a call that ends before they do
        depth = len(ends)
        if ends:
            length = min(length, ends[-1] - begin)  # a span is cut at the end of its parent
            inner[-1] += length
            around = open_[-1][1]
            if around == DATA or (around in (OPTIMIZER, COMMUNICATION) and part not in (WAIT, COMMUNICATION)):
                part = around
        if part == STEP:
            part = OTHER
            if step is None:
                step = Step(step_number(labels[label][1]), begin, length)
                swept.steps.append(step)
                step_depth = depth
        key = (label, detail_of[i])
        cell = sums.get(key)
        if cell is None:
            cell = sums[key] = [0, 0, 0]
        cell[0] += 1
        if not ends or open_[-1][3] != label:
            cell[1] += length
        ends.append(begin + length)
        inner.append(0)
        open_.append((length, part, cell, label))
        if depth < DEEPEST:
            if depth == len(levels):
                levels.append(Level())
            level = levels[depth]
            level.start.append(begin)
            level.duration.append(length)
            level.label.append(label)
            level.detail.append(key[1])
    while ends:
        close()
    return levels
