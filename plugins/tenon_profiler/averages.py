"""Events as torch's users know them, their sums by name, and the table of these.

Times are microseconds; *self* is without what nests inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tenon.extend import errors
from tenon_profiler.events import DEVICE, INSTANT, Event, nest
from tenon_profiler.text import draw, percent, size_text, time_text

#: What a table may be sorted by.
SORTABLE = (
    "cpu_time", "cpu_time_total", "self_cpu_time_total", "cpu_memory_usage", "self_cpu_memory_usage", "count",
    "flops",
)  # fmt: skip
_HIDDEN = DEVICE | {"tenon_profiler", INSTANT}


class FunctionEvent:
    """One event, with torch's attributes."""

    count = 1

    def __init__(self, event: Event) -> None:
        self.event = event
        self.name = self.key = event.name
        self.thread = event.tid
        self.input_shapes = event.get("Input Dims", [])
        self.module = event.get("Module", "")
        self.phase = event.get("Phase", "")
        self.flops = event.get("FLOPs", 0.0)
        stack = event.get("Call stack", "")
        self.stack = stack.split(";") if stack else []
        self.is_user_annotation = event.category == "user_annotation"
        self.sequence_nr = event.get("Sequence number", -1)
        self.cpu_time_total = event.duration / 1000
        self.self_cpu_time_total = event.self_time / 1000
        self.cpu_memory_usage = 0
        self.self_cpu_memory_usage = 0
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None

    @property
    def cpu_time(self) -> float:
        """The same as ``cpu_time_total``."""
        return self.cpu_time_total

    @property
    def time_range(self) -> tuple[float, float]:
        """Begin and end, in microseconds since 1970."""
        return self.event.begin / 1000, self.event.end / 1000

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent name={self.name} cpu_time={self.cpu_time_total:.3f}us thread={self.thread}"
            f" input_shapes={self.input_shapes} module={self.module!r}>"
        )


class FunctionEventAvg:
    """Sums over events of one key; ``cpu_time`` is the mean."""

    def __init__(self, key: str, first: FunctionEvent, shapes: bool, stack: int, module: bool) -> None:
        self.key = key
        self.input_shapes = first.input_shapes if shapes else ""
        self.stack = first.stack[:stack] if stack else []
        self.module = first.module if module else ""
        self.is_user_annotation = first.is_user_annotation
        self.count = 0
        self.flops = 0.0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0

    def add(self, event: FunctionEvent) -> None:
        """One more event."""
        self.count += 1
        self.flops += event.flops
        self.cpu_time_total += event.cpu_time_total
        self.self_cpu_time_total += event.self_cpu_time_total
        self.cpu_memory_usage += event.cpu_memory_usage
        self.self_cpu_memory_usage += event.self_cpu_memory_usage

    @property
    def cpu_time(self) -> float:
        """The mean of an event."""
        return self.cpu_time_total / max(self.count, 1)

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total:.3f}us"
            f" cpu_time={self.cpu_time:.3f}us count={self.count} input_shapes={self.input_shapes}>"
        )


def function_events(events: Iterable[Event]) -> list[FunctionEvent]:
    """Nested, each with the memory that was taken and given back inside."""
    listed = list(events)
    nest(listed)
    made = {id(e): FunctionEvent(e) for e in listed if e.category not in _HIDDEN}
    for event in listed:
        own = made.get(id(event))
        if own is not None:
            parent = event.parent
            while parent is not None and id(parent) not in made:
                parent = parent.parent
            if parent is not None:
                own.cpu_parent = made[id(parent)]
                own.cpu_parent.cpu_children.append(own)
        elif event.category == INSTANT:
            inner = made.get(id(event.parent))
            if inner is None:
                inner = made[id(event)] = FunctionEvent(event)
            size = event.get("Bytes", 0)
            inner.self_cpu_memory_usage += size
            inner.cpu_memory_usage += size
            above = event.parent.parent if event.parent is not None else None
            while above is not None:
                if id(above) in made:
                    made[id(above)].cpu_memory_usage += size
                above = above.parent
    return sorted(made.values(), key=lambda e: e.event.begin)


class EventList(list[Any]):
    """Events, or sums of them."""

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_module: bool = False
    ) -> EventList:
        """Sums by name, and by shapes, the innermost frames of the stack, and module where asked for."""
        sums: dict[Any, FunctionEventAvg] = {}
        for event in self:
            key: list[Any] = [event.key]
            if group_by_input_shape:
                key.append(str(event.input_shapes))
            if group_by_stack_n:
                key.append(tuple(event.stack[:group_by_stack_n]))
            if group_by_module:
                key.append(event.module)
            found = sums.get(tuple(key))
            if found is None:
                found = sums[tuple(key)] = FunctionEventAvg(
                    event.key, event, group_by_input_shape, group_by_stack_n, group_by_module
                )
            found.add(event)
        return EventList(sums.values())

    def total_average(self) -> FunctionEventAvg:
        """The sum of everything, under the key "Total"."""
        if not self:
            raise errors.TraceError("there are no events to sum up.")
        total = FunctionEventAvg("Total", self[0], False, 0, False)
        for event in self:
            total.add(event)
        return total

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds, each counted once."""
        return sum(float(event.self_cpu_time_total) for event in self)

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
    ) -> str:
        """As text, the largest first; columns that would be empty are left out."""
        rows: Sequence[Any] = self
        if top_level_events_only:
            rows = [row for row in rows if getattr(row, "cpu_parent", None) is None]
        if sort_by is not None:
            if sort_by not in SORTABLE:
                raise errors.ArgumentError(f"sort_by={sort_by!r} is none of {', '.join(SORTABLE)}.")
            rows = sorted(rows, key=lambda row: getattr(row, sort_by), reverse=True)
        if row_limit >= 0:
            rows = rows[:row_limit]
        total = self.self_cpu_time_total
        columns: list[tuple[str, list[str], int]] = [
            ("Name", [row.key for row in rows], max_name_column_width),
            ("Self CPU %", [percent(row.self_cpu_time_total, total) for row in rows], 0),
            ("Self CPU", [time_text(row.self_cpu_time_total) for row in rows], 0),
            ("CPU total %", [percent(row.cpu_time_total, total) for row in rows], 0),
            ("CPU total", [time_text(row.cpu_time_total) for row in rows], 0),
            ("CPU time avg", [time_text(row.cpu_time) for row in rows], 0),
        ]
        if any(row.cpu_memory_usage or row.self_cpu_memory_usage for row in rows):
            columns.append(("CPU Mem", [size_text(row.cpu_memory_usage) for row in rows], 0))
            columns.append(("Self CPU Mem", [size_text(row.self_cpu_memory_usage) for row in rows], 0))
        columns.append(("# of Calls", [str(row.count) for row in rows], 0))
        if any(row.flops for row in rows):
            columns.append(
                ("Total MFLOPs", [f"{row.flops / 1e6:.3f}" if row.flops else "--" for row in rows], 0)
            )
        if any(row.input_shapes for row in rows):
            shapes = [str(row.input_shapes) for row in rows]
            columns.append(("Input Shapes", shapes, max_shapes_column_width))
        if any(row.module for row in rows):
            columns.append(("Module", [row.module for row in rows], max_src_column_width))
        if any(row.stack for row in rows):
            places = [row.stack[0] if row.stack else "" for row in rows]
            columns.append(("Source Location", places, max_src_column_width))
        return draw(columns, header) + f"\nSelf CPU time total: {time_text(total)}\n"
