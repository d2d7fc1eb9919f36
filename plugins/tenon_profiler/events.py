"""``Event``: a record with all its attributes, as tables and traces show it.

Records are written in the hot path; what takes time happens after the step: names of dtypes, FLOPs, stacks.
Events share what they have in common, so ``args`` must not be modified.
"""

from __future__ import annotations

from typing import Any, TypeAlias

#: Arguments of an event by name: JSON values.
Arguments: TypeAlias = dict[str, Any]
#: The category of events without a duration.
INSTANT = "cpu_instant_event"
#: Categories of events of a device, which belong to an op by its number and not by time.
DEVICE = frozenset(("runtime", "kernel"))


class Event:
    """One span (``ph`` "X") or instant ("i"); times are nanoseconds since 1970 on rank 0's clock."""

    __slots__ = ("args", "begin", "category", "children", "end", "name", "own", "parent", "tid")

    def __init__(
        self,
        category: str,
        name: str,
        tid: int,
        begin: int,
        end: int,
        args: Arguments,
        own: Arguments | None = None,
    ) -> None:
        self.category, self.name, self.tid = category, name, tid
        self.begin, self.end = begin, end
        #: Shared with events of the same kind.
        self.args = args
        #: Arguments of this event alone.
        self.own = own
        self.parent: Event | None = None
        self.children: list[Event] = []

    # An argument is a JSON value.
    def get(self, key: str, default: object = None) -> Any:
        """Return the argument ``key``, or ``default``."""
        if self.own is not None and key in self.own:
            return self.own[key]
        return self.args.get(key, default)

    @property
    def duration(self) -> int:
        """Nanoseconds, nested events included."""
        return self.end - self.begin

    @property
    def self_time(self) -> int:
        """Nanoseconds, nested events excluded."""
        return self.duration - sum(child.duration for child in self.children)

    def __repr__(self) -> str:
        return f"<{self.category} {self.name} of {self.duration / 1000:.1f} us>"


def nest(events: list[Event]) -> list[Event]:
    """Set parents and children by time, within each thread; return the outermost spans in order of time.

    Instants have parents, but are not listed as children.
    """
    roots: list[Event] = []
    for event in events:
        event.parent, event.children = None, []
    open_spans: dict[int, list[Event]] = {}
    hosts = (event for event in events if event.category not in DEVICE)
    for event in sorted(hosts, key=lambda e: (e.begin, -e.end)):
        stack = open_spans.setdefault(event.tid, [])
        while stack and stack[-1].end < event.end:
            stack.pop()
        if stack and stack[-1].begin <= event.begin:
            event.parent = stack[-1]
        if event.category == INSTANT:
            continue
        if event.parent is not None:
            event.parent.children.append(event)
        else:
            roots.append(event)
        stack.append(event)
    return roots
