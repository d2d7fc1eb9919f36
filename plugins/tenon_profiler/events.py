"""``Event``: a record with everything that can be said of it, as it goes into tables and traces.

A record is made in the hot path; what takes time happens here, after the step: dtypes' names, FLOPs, stacks.
What many events have in common is made once, and shared: ``args`` is not to be changed.
"""

from __future__ import annotations

from typing import Any

INSTANT = "cpu_instant_event"
#: What belongs to a device, and to an op by its number, not by time.
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
        args: dict[str, Any],
        own: dict[str, Any] | None = None,
    ) -> None:
        self.category, self.name, self.tid = category, name, tid
        self.begin, self.end = begin, end
        #: Shared with events of the same kind.
        self.args = args
        #: What this event alone has.
        self.own = own
        self.parent: Event | None = None
        self.children: list[Event] = []

    def get(self, key: str, default: Any = None) -> Any:
        """An argument."""
        if self.own is not None and key in self.own:
            return self.own[key]
        return self.args.get(key, default)

    @property
    def duration(self) -> int:
        """Nanoseconds, with all that nests inside."""
        return self.end - self.begin

    @property
    def self_time(self) -> int:
        """Nanoseconds, without what nests inside."""
        return self.duration - sum(child.duration for child in self.children)

    def __repr__(self) -> str:
        return f"<{self.category} {self.name} of {self.duration / 1000:.1f} us>"


def nest(events: list[Event]) -> list[Event]:
    """Find parents and children by time, within each thread; the outermost spans, in order of time.

    Instants have parents, but are no children.
    """
    roots: list[Event] = []
    for event in events:
        event.parent, event.children = None, []
    open_ones: dict[int, list[Event]] = {}
    hosts = (event for event in events if event.category not in DEVICE)
    for event in sorted(hosts, key=lambda e: (e.begin, -e.end)):
        stack = open_ones.setdefault(event.tid, [])
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
