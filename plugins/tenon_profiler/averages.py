"""Events with PyTorch's attributes, their averages by name, and the table that prints them.

Times are in microseconds; *self* excludes nested events.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tenon.extend import errors
from tenon_profiler import stacks
from tenon_profiler.events import DEVICE, INSTANT, Event, nest
from tenon_profiler.programs import source_texts
from tenon_profiler.text import draw, percent, size_text, time_text

#: What a table can be sorted by; PyTorch's older "cuda" in place of "device" is accepted.
SORTABLE = (
    "cpu_time", "cpu_time_total", "self_cpu_time_total", "cpu_memory_usage", "self_cpu_memory_usage",
    "device_time", "device_time_total", "self_device_time_total", "device_memory_usage",
    "self_device_memory_usage", "count", "flops",
)  # fmt: skip
_HIDDEN = DEVICE | {"tenon_profiler", INSTANT}


@dataclass(frozen=True, slots=True)
class Interval:
    """A time interval, in microseconds since 1970."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """Return the length in microseconds."""
        return self.end - self.start


#: Attributes of events that are summed.
_SUMMED = (
    "flops", "cpu_time_total", "self_cpu_time_total", "device_time_total", "self_device_time_total",
    "cpu_memory_usage", "self_cpu_memory_usage", "device_memory_usage", "self_device_memory_usage",
)  # fmt: skip


class DeviceType(enum.Enum):
    """The device of an event: always the CPU, as kernels count as ``device_time`` of their ops."""

    CPU = 0
    CUDA = 1


class _Times:
    """Times of events and of their sums, in microseconds; device times are those of kernels."""

    count = 1
    #: Attributes of PyTorch's class that are constant here.
    is_async = is_remote = is_legacy = False
    overload_name = ""
    node_id = -1
    device_type = DeviceType.CPU

    def __init__(self) -> None:
        self.flops = 0.0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.device_time_total = self.self_device_time_total = 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0
        self.device_memory_usage = self.self_device_memory_usage = 0

    @property
    def cpu_time(self) -> float:
        """The mean per event."""
        return self.cpu_time_total / max(self.count, 1)

    @property
    def device_time(self) -> float:
        """The mean per event."""
        return self.device_time_total / max(self.count, 1)

    @property
    def cpu_time_str(self) -> str:
        """``cpu_time`` with its unit."""
        return time_text(self.cpu_time)

    @property
    def cpu_time_total_str(self) -> str:
        """``cpu_time_total`` with its unit."""
        return time_text(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self) -> str:
        """``self_cpu_time_total`` with its unit."""
        return time_text(self.self_cpu_time_total)

    @property
    def device_time_str(self) -> str:
        """``device_time`` with its unit."""
        return time_text(self.device_time)

    @property
    def device_time_total_str(self) -> str:
        """``device_time_total`` with its unit."""
        return time_text(self.device_time_total)

    @property
    def self_device_time_total_str(self) -> str:
        """``self_device_time_total`` with its unit."""
        return time_text(self.self_device_time_total)

    @property
    def cuda_time(self) -> float:
        """``device_time`` under its older name."""
        return self.device_time

    @property
    def cuda_time_total(self) -> float:
        """``device_time_total`` under its older name."""
        return self.device_time_total

    @property
    def self_cuda_time_total(self) -> float:
        """``self_device_time_total`` under its older name."""
        return self.self_device_time_total


class FunctionEvent(_Times):
    """One event, with the attributes of PyTorch's class."""

    def __init__(
        self,
        id: int,
        name: str,
        thread: int,
        start_us: float,
        end_us: float,
        *,
        input_shapes: Sequence[Sequence[int]] = (),
        stack: Sequence[str] = (),
        node_id: int = -1,
        sequence_nr: int = -1,
        flops: float = 0.0,
        is_user_annotation: bool = False,
    ) -> None:
        super().__init__()
        self.id, self.thread, self.node_id, self.sequence_nr = id, thread, node_id, sequence_nr
        self.name = self.key = name
        self.time_range = Interval(start_us, end_us)
        self.input_shapes, self.stack = list(input_shapes), list(stack)
        self.input_dtypes: list[str] = []
        self.module = self.phase = ""
        #: Of a kernel of a compiled program, the ops that it was made of, each with its line and module.
        self.sources: list[str] = []
        self.flops = flops
        self.is_user_annotation = is_user_annotation
        self.is_async = name.startswith("gloo:")  # collectives, as in PyTorch
        self.cpu_time_total = self.self_cpu_time_total = self.time_range.elapsed_us()
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        #: The recorded event; None if this one was constructed directly.
        self.event: Event | None = None

    @classmethod
    def of(cls, event: Event) -> FunctionEvent:
        """Convert a recorded event."""
        stack = event.get("Call stack", "")
        converted = cls(
            event.get("External id", 0),
            event.name,
            event.tid,
            event.begin / 1000,
            event.end / 1000,
            input_shapes=event.get("Input Dims", []),
            stack=stack.split(";") if stack else [],
            sequence_nr=event.get("Sequence number", -1),
            flops=event.get("FLOPs", 0.0),
            is_user_annotation=event.category == "user_annotation",
        )
        converted.event, converted.input_dtypes = event, event.get("Input type", [])
        converted.module, converted.phase = event.get("Module", ""), event.get("Phase", "")
        converted.sources = source_texts(event.args) if event.get("Kernel") else []
        converted.cpu_time_total = event.duration / 1000
        converted.self_cpu_time_total = event.self_time / 1000
        return converted

    def adopt(self, child: FunctionEvent) -> None:
        """Add a nested event and subtract its time from this event's self time."""
        self.cpu_children.append(child)
        child.cpu_parent = self
        self.self_cpu_time_total -= child.cpu_time_total

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent name={self.name} cpu_time={self.cpu_time_total:.3f}us thread={self.thread}"
            f" input_shapes={self.input_shapes} module={self.module!r}>"
        )


class FunctionEventAvg(_Times):
    """Sums over events with the same key; ``cpu_time`` is their mean."""

    def __init__(
        self,
        key: str | None = None,
        first: FunctionEvent | None = None,
        shapes: bool = False,
        stack: int = 0,
        module: bool = False,
    ) -> None:
        super().__init__()
        self.key = key
        self.input_shapes = first.input_shapes if first and shapes else ""
        self.stack = first.stack[:stack] if first and stack else []
        self.module = first.module if first and module else ""
        self.sources = list(first.sources) if first else []
        self.is_user_annotation = first is not None and first.is_user_annotation
        self.count = 0

    def add(self, event: FunctionEvent | FunctionEventAvg) -> FunctionEventAvg:
        """Add an event, or another average; an empty one takes the key of the first."""
        if self.key is None:
            self.key = event.key
        self.count += event.count
        self.sources += [source for source in event.sources if source not in self.sources]
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(event, name))
        return self

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total:.3f}us"
            f" cpu_time={self.cpu_time:.3f}us count={self.count} input_shapes={self.input_shapes}>"
        )


def function_events(events: Iterable[Event]) -> list[FunctionEvent]:
    """Convert recorded events, nested, with the memory changes inside and their kernels' times."""
    listed = list(events)
    nest(listed)
    kernels = {e.get("External id"): e.duration / 1000 for e in listed if e.category == "kernel"}
    converted = {id(e): FunctionEvent.of(e) for e in listed if e.category not in _HIDDEN}
    for event in listed:
        own = converted.get(id(event))
        if own is not None:
            parent = event.parent
            while parent is not None and id(parent) not in converted:
                parent = parent.parent
            if parent is not None:
                own.cpu_parent = converted[id(parent)]
                own.cpu_parent.cpu_children.append(own)
            own.self_device_time_total = kernels.get(event.get("External id", -1), 0.0)
        elif event.category == INSTANT:
            inner = converted.get(id(event.parent))
            if inner is None:
                inner = converted[id(event)] = FunctionEvent.of(event)
            size = event.get("Bytes", 0)
            usage = "cpu_memory_usage" if event.get("Device Id", -1) < 0 else "device_memory_usage"
            for name in (usage, f"self_{usage}"):
                setattr(inner, name, getattr(inner, name) + size)
            outer = event.parent.parent if event.parent is not None else None
            while outer is not None:
                if id(outer) in converted:
                    own = converted[id(outer)]
                    setattr(own, usage, getattr(own, usage) + size)
                outer = outer.parent
    for own in converted.values():
        ancestor: FunctionEvent | None = own
        while own.self_device_time_total and ancestor is not None:
            ancestor.device_time_total += own.self_device_time_total
            ancestor = ancestor.cpu_parent
    return sorted(converted.values(), key=lambda e: e.time_range.start)


class EventList(list[Any]):  # Any: events, or averages of them
    """A list of events or of averages."""

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
        *,
        group_by_module: bool = False,
    ) -> EventList:
        """Return sums by name, and optionally by shapes, innermost frames of the stack, and module.

        Ops have one name for all overloads.
        """
        sums: dict[tuple[object, ...], FunctionEventAvg] = {}
        for event in self:
            key: list[object] = [event.key]
            if group_by_input_shapes:
                key.append(str(event.input_shapes))
            if group_by_stack_n:
                key.append(tuple(event.stack[:group_by_stack_n]))
            if group_by_module:
                key.append(event.module)
            average = sums.get(tuple(key))
            if average is None:
                average = sums[tuple(key)] = FunctionEventAvg(
                    event.key, event, group_by_input_shapes, group_by_stack_n, group_by_module
                )
            average.add(event)
        return EventList(sums.values())

    def _populate_cpu_children(self) -> None:
        """Nest events that were constructed directly, each in the shortest event of its thread around it."""
        open_events: dict[tuple[int, int], list[FunctionEvent]] = {}
        for event in sorted(self, key=lambda e: (e.time_range.start, -e.time_range.end)):
            outer = open_events.setdefault((event.thread, event.node_id), [])
            while outer and event.time_range.end > outer[-1].time_range.end:
                outer.pop()
            if outer:
                outer[-1].adopt(event)
            outer.append(event)

    def total_average(self) -> FunctionEventAvg:
        """Return the sum of all events, with the key "Total"."""
        total = FunctionEventAvg("Total")
        for event in self:
            total.add(event)
        return total

    @staticmethod
    def supported_export_stacks_metrics() -> list[str]:
        """Return the metrics that ``export_stacks`` accepts."""
        return list(stacks.METRICS)

    def export_stacks(self, path: str | os.PathLike[str], metric: str) -> None:
        """Write a line per stack with its microseconds, for flame graph tools; needs ``with_stack``."""
        stacks.export(self, path, metric)

    @property
    def self_cpu_time_total(self) -> float:
        """Total self time of all events, in microseconds."""
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
        time_unit: str | None = None,
    ) -> str:
        """Return a table as text, the largest first; columns that would be empty are left out.

        Times are in ``time_unit``, "s", "ms" or "us", by default each in a suitable one.
        """
        # Averages, or single events, which have the same attributes.
        rows: Sequence[Any] = self
        if top_level_events_only:
            rows = [row for row in rows if getattr(row, "cpu_parent", None) is None]
        if sort_by is not None:
            sort_by = sort_by.replace("cuda", "device")
            if sort_by not in SORTABLE:
                raise errors.ArgumentError(f"sort_by={sort_by!r} is not one of {', '.join(SORTABLE)}.")
            rows = sorted(rows, key=lambda row: getattr(row, sort_by), reverse=True)
        if row_limit >= 0:
            rows = rows[:row_limit]
        total = self.self_cpu_time_total
        columns: list[tuple[str, list[str], int]] = [
            ("Name", [row.key for row in rows], max_name_column_width),
            ("Self CPU %", [percent(row.self_cpu_time_total, total) for row in rows], 0),
            ("Self CPU", [time_text(row.self_cpu_time_total, time_unit) for row in rows], 0),
            ("CPU total %", [percent(row.cpu_time_total, total) for row in rows], 0),
            ("CPU total", [time_text(row.cpu_time_total, time_unit) for row in rows], 0),
            ("CPU time avg", [time_text(row.cpu_time, time_unit) for row in rows], 0),
        ]
        if any(row.device_time_total for row in rows):
            for title, name in (("Self", "self_device_time_total"), ("Total", "device_time_total")):
                cells = [time_text(getattr(row, name), time_unit) for row in rows]
                columns.append((f"{title} device", cells, 0))
        for title, name in (("CPU Mem", "cpu_memory_usage"), ("Device Mem", "device_memory_usage")):
            sizes = [(getattr(row, name), getattr(row, f"self_{name}")) for row in rows]
            if any(map(any, sizes)):
                columns.append((title, [size_text(size) for size, _ in sizes], 0))
                columns.append((f"Self {title}", [size_text(own) for _, own in sizes], 0))
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
        if any(row.sources for row in rows):
            columns.append(("Source Ops", [", ".join(row.sources) for row in rows], max_src_column_width))
        if any(row.stack for row in rows):
            locations = [row.stack[0] if row.stack else "" for row in rows]
            columns.append(("Source Location", locations, max_src_column_width))
        return draw(columns, header) + f"\nSelf CPU time total: {time_text(total)}\n"

    __str__ = table
