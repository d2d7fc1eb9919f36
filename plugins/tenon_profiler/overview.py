"""Divide the time of steps: compute, communication, wait, data, optimizer, other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tenon_profiler.events import DEVICE, INSTANT, Event, nest

PARTS = ("compute", "communication", "wait", "data", "optimizer", "other")
STEP = "ProfilerStep#"


def part_of(event: Event, outer: str) -> str:
    """Return the part that an event's self time belongs to, if its parent belongs to ``outer``."""
    name, category = event.name, event.category
    if category == "tenon_wait":
        return "wait"
    if category == "tenon_transfer" or name.startswith("gloo:"):
        return "communication"
    if category == "tenon_profiler":
        return "other"
    if name.startswith("enumerate(DataLoader)#") or outer == "data":
        return "data"
    if name.startswith("Optimizer.step#") or outer == "optimizer":
        return "optimizer"
    return "compute" if category == "cpu_op" else "other"


def steps(events: Iterable[Event]) -> list[tuple[str, int, dict[str, int]]]:
    """Return name, nanoseconds and parts of each profiled step; the parts add up to its time.

    Without recorded steps, the thread with the most events counts as one step from its begin to its end.
    """
    listed = list(events)
    step_events = [event for event in listed if event.name.startswith(STEP)]
    if not step_events:
        step_events = _step_around(listed)
        listed = step_events + listed
    nest(listed)
    divided = []
    for event in step_events:
        parts = dict.fromkeys(PARTS, 0)
        _add(event, "other", parts)
        divided.append((event.name, event.duration, parts))
    return divided


def _step_around(events: list[Event]) -> list[Event]:
    """Return a step around all spans of the thread that has the most; none if nothing was recorded."""
    hosted = [event for event in events if event.category != INSTANT and event.category not in DEVICE]
    if not hosted:
        return []
    ((tid, _),) = Counter(event.tid for event in hosted).most_common(1)
    own = [event for event in hosted if event.tid == tid]
    begin, end = min(event.begin for event in own), max(event.end for event in own)
    return [Event("user_annotation", f"{STEP}0", tid, begin, end, {})]


def _add(event: Event, outer: str, parts: dict[str, int]) -> None:
    """Add the self times of ``event`` and all nested events to ``parts``."""
    stack: list[tuple[Event, str]] = [(event, outer)]
    while stack:
        current, parent_part = stack.pop()
        part = part_of(current, parent_part)
        parts[part] += current.self_time
        stack += [(child, part) for child in current.children]


# Numbers, and for each part a pair of them.
def summary(divided: list[tuple[str, int, dict[str, int]]]) -> dict[str, Any]:
    """Return means over steps, in microseconds, and the share of each part."""
    total = sum(duration for _, duration, _ in divided)
    count = max(len(divided), 1)
    shares = {part: sum(parts[part] for _, _, parts in divided) for part in PARTS}
    return {
        "steps": len(divided),
        "step_us": total / count / 1000,
        "parts": {
            part: (time / count / 1000, time / total if total else 0.0) for part, time in shares.items()
        },
    }
