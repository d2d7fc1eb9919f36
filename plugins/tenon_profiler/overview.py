"""Where the time of steps goes: compute, communication, wait, data, optimizer, other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tenon_profiler.events import DEVICE, INSTANT, Event, nest

PARTS = ("compute", "communication", "wait", "data", "optimizer", "other")
STEP = "ProfilerStep#"


def part_of(event: Event, around: str) -> str:
    """The part that an event's own time belongs to, inside of something that belongs to ``around``."""
    name, category = event.name, event.category
    if category == "tenon_wait":
        return "wait"
    if category == "tenon_transfer" or name.startswith("gloo:"):
        return "communication"
    if category == "tenon_profiler":
        return "other"
    if name.startswith("enumerate(DataLoader)#") or around == "data":
        return "data"
    if name.startswith("Optimizer.step#") or around == "optimizer":
        return "optimizer"
    return "compute" if category == "cpu_op" else "other"


def steps(events: Iterable[Event]) -> list[tuple[str, int, dict[str, int]]]:
    """Name, nanoseconds and parts of each profiled step; the parts add up to the whole.

    Without recorded steps, the busiest thread counts as one step from end to end.
    """
    listed = list(events)
    marked = [event for event in listed if event.name.startswith(STEP)]
    if not marked:
        marked = _whole(listed)
        listed = marked + listed
    nest(listed)
    found = []
    for event in marked:
        parts = dict.fromkeys(PARTS, 0)
        _add(event, "other", parts)
        found.append((event.name, event.duration, parts))
    return found


def _whole(events: list[Event]) -> list[Event]:
    """A step around all spans of the thread that has most; none where nothing was recorded."""
    hosted = [event for event in events if event.category != INSTANT and event.category not in DEVICE]
    if not hosted:
        return []
    ((tid, _),) = Counter(event.tid for event in hosted).most_common(1)
    own = [event for event in hosted if event.tid == tid]
    begin, end = min(event.begin for event in own), max(event.end for event in own)
    return [Event("user_annotation", f"{STEP}0", tid, begin, end, {})]


def _add(event: Event, around: str, parts: dict[str, int]) -> None:
    stack: list[tuple[Event, str]] = [(event, around)]
    while stack:
        current, outer = stack.pop()
        part = part_of(current, outer)
        parts[part] += current.self_time
        stack += [(child, part) for child in current.children]


def summary(found: list[tuple[str, int, dict[str, int]]]) -> dict[str, Any]:
    """Means over steps, in microseconds, and the share of each part."""
    total = sum(duration for _, duration, _ in found)
    count = max(len(found), 1)
    shares = {part: sum(parts[part] for _, _, parts in found) for part in PARTS}
    return {
        "steps": len(found),
        "step_us": total / count / 1000,
        "parts": {
            part: (time / count / 1000, time / total if total else 0.0) for part, time in shares.items()
        },
    }
