"""Validate the events of a trace and store them as columns: 28 bytes per span, names and arguments once.

Events with values of wrong types are counted by reason and skipped; nothing is converted. Times become
integer nanoseconds from the first event on. ``lines.py`` does the same for many lines at a time.
"""

from __future__ import annotations

import json
import math
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import numpy as np

#: A JSON object, whose values are checked where they are used.
JsonObject: TypeAlias = dict[str, Any]
#: A row of a view's table; the function that returns rows documents their columns.
Row: TypeAlias = list[Any]
#: The process and the thread or stream of a lane, each an int or a str.
LaneKey: TypeAlias = tuple[object, object]
MOST_SPANS = 4_000_000
MOST_NAMES = 200_000
MOST_DEVICES = 64
LONGEST_NAME = 300
#: The total number of characters of distinct arguments; later ones are dropped.
MOST_DETAIL = 64 << 20
#: The largest duration of a span, five hours in nanoseconds; longer ones would break the order by start.
LONGEST_SPAN = 1 << 44
_ORIGIN_LIMIT = 1 << 62
#: Arguments that differ between all events and that no view shows.
_UNIQUE = frozenset(
    {"External id", "correlation", "Ev Idx", "Sequence number", "Python id", "Python parent id", "Call stack"}
)


class Unusable(ValueError):
    """An invalid event; the message is the reason, in few words."""


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_STRICT = json.JSONDecoder(parse_constant=_no_constant)
#: (text, position) -> (value, end); a ``StopIteration`` or ``ValueError`` says where the text is invalid.
scan = _STRICT.scan_once  # type: ignore[attr-defined]
#: Parse a text that is one JSON value; NaN and infinities are errors.
parse = _STRICT.decode


@dataclass(slots=True)
class Lane:
    """The spans of one thread or stream, in the order of the file."""

    name: str
    start: array[int] = field(default_factory=lambda: array("q"))
    duration: array[int] = field(default_factory=lambda: array("q"))
    label: array[int] = field(default_factory=lambda: array("i"))
    detail: array[int] = field(default_factory=lambda: array("i"))


@dataclass(slots=True)
class Changes:
    """The memory events of one file, in its order; ``device`` is an index into ``devices``."""

    devices: list[str] = field(default_factory=list)
    at: array[int] = field(default_factory=lambda: array("q"))
    size: array[int] = field(default_factory=lambda: array("q"))
    address: array[int] = field(default_factory=lambda: array("q"))
    device: array[int] = field(default_factory=lambda: array("q"))
    allocated: array[int] = field(default_factory=lambda: array("q"))
    reserved: array[int] = field(default_factory=lambda: array("q"))
    detail: array[int] = field(default_factory=lambda: array("q"))

    def columns(self) -> list[array[int]]:
        """Return all columns; device names are not one."""
        columns = (self.at, self.size, self.address, self.device, self.allocated, self.reserved, self.detail)
        return list(columns)

    def extend(self, columns: Sequence[np.ndarray]) -> None:
        """Append many events at once: seven columns of 64 bits."""
        for own, more in zip(self.columns(), columns, strict=True):
            own.frombytes(more.tobytes())


@dataclass(slots=True)
class Collected:
    """The contents of one file from which the views are computed."""

    #: The distinct pairs (category, name), and the distinct arguments of spans.
    labels: list[tuple[str, str]] = field(default_factory=list)
    details: list[JsonObject] = field(default_factory=lambda: [{}])
    lanes: dict[LaneKey, Lane] = field(default_factory=dict)
    thread_names: dict[LaneKey, str] = field(default_factory=dict)
    memory: Changes = field(default_factory=Changes)
    skipped: Counter[str] = field(default_factory=Counter)
    spans: int = 0
    #: The time of the file's first event, from which all times count; earlier ones are negative.
    origin: int | None = None
    first: int = 0
    last: int = 0
    _label_of: dict[tuple[str, str], int] = field(default_factory=dict)
    _detail_of: dict[str, int] = field(default_factory=dict)
    _detail_size: int = 0

    def add(self, event: object) -> None:
        """Add one event, or count the reason why it is invalid."""
        try:
            if type(event) is not dict:
                raise Unusable("an event is not an object")
            phase = event.get("ph")
            if phase == "X":
                self._span(event)
            elif phase == "i" and event.get("name") == "[memory]":
                self._memory(event)
            elif phase == "M":
                self._name(event)
            elif type(phase) is not str:
                raise Unusable("`ph` is not a string")
        except Unusable as error:
            self.skipped[str(error)] += 1

    def _span(self, event: JsonObject) -> None:
        if self.spans >= MOST_SPANS:
            raise Unusable(f"more than {MOST_SPANS:,} spans in one file")
        start, duration = self._time(event.get("ts")), _nanoseconds(event.get("dur"), "dur")
        if not 0 <= duration < LONGEST_SPAN:
            raise Unusable("`dur` is negative or longer than hours")
        args = event.get("args")
        detail = self.detail(args) if args else 0
        key, label = self.place(event)
        lane = self.lanes[key]
        lane.start.append(start)
        lane.duration.append(duration)
        lane.label.append(label)
        lane.detail.append(detail)
        self.seen(start, start + duration)
        self.spans += 1

    def seen(self, first: int, last: int) -> None:
        """Extend the time range of the file to ``first`` and ``last``."""
        self.first, self.last = min(self.first, first), max(self.last, last)

    def place(self, event: JsonObject) -> tuple[LaneKey, int]:
        """Return the key of a span's lane and the index of its label."""
        name, category = event.get("name"), event.get("cat")
        if type(name) is not str or type(category) is not str:
            raise Unusable("`name` or `cat` is not a string")
        key = (event.get("pid"), event.get("tid"))
        if type(key[0]) not in (int, str) or type(key[1]) not in (int, str):
            raise Unusable("`pid` or `tid` is neither a number nor a string")
        if key not in self.lanes:
            if len(self.lanes) >= 1000:
                raise Unusable("more than 1,000 threads in one file")
            self.lanes[key] = Lane(_clip(f"{key[0]} / {key[1]}"))
        label = self._label_of.get((category, name))
        return key, self._new_label((category, name)) if label is None else label

    def _time(self, value: object) -> int:
        moment = _nanoseconds(value, "ts")
        if self.origin is None:
            self.origin = moment
        moment -= self.origin
        if not -_ORIGIN_LIMIT < moment < _ORIGIN_LIMIT:
            raise Unusable("`ts` is years away from the first one")
        return moment

    def _new_label(self, key: tuple[str, str]) -> int:
        if len(self.labels) >= MOST_NAMES:
            raise Unusable(f"more than {MOST_NAMES:,} different names in one file")
        self.labels.append((_clip(key[0]), _clip(key[1])))
        return self._label_of.setdefault(key, len(self.labels) - 1)

    def detail(self, args: object) -> int:
        """Return the index of ``args``; 0, that of no arguments, once there are too many distinct ones."""
        if type(args) is not dict:
            raise Unusable("`args` is not an object")
        common = {key: value for key, value in args.items() if key not in _UNIQUE}
        key = repr(common)
        if len(key) > 20_000:
            raise Unusable("`args` is longer than 20,000 characters")
        index = self._detail_of.get(key)
        if index is None:
            self._detail_size += len(key)
            if len(self.details) >= MOST_NAMES or self._detail_size > MOST_DETAIL:
                return 0
            self.details.append(common)
            index = self._detail_of[key] = len(self.details) - 1
        return index

    def _memory(self, event: JsonObject) -> None:
        args = event.get("args")
        if type(args) is not dict:
            raise Unusable("`args` of [memory] is not an object")
        if len(self.memory.at) >= MOST_SPANS:
            raise Unusable(f"more than {MOST_SPANS:,} changes of memory in one file")
        change = _integer(args, "Bytes")
        address = _integer(args, "Addr") if "Addr" in args else 0
        allocated = _integer(args, "Total Allocated")
        reserved = _integer(args, "Total Reserved") if "Total Reserved" in args else 0
        device, detail = self.owner(args)
        row = (self._time(event.get("ts")), change, address, device, allocated, reserved, detail)
        for column, value in zip(self.memory.columns(), row, strict=True):
            column.append(value)

    def owner(self, args: JsonObject) -> tuple[int, int]:
        """Return the index of a memory event's device, and of the detail with its owner."""
        kind = _integer(args, "Device Type") if "Device Type" in args else 0
        index = _integer(args, "Device Id") if "Device Id" in args else -1
        device, known = "cpu" if kind == 0 else f"cuda:{index}", self.memory.devices
        if device not in known:
            if len(known) >= MOST_DEVICES:
                raise Unusable(f"memory of more than {MOST_DEVICES} devices")
            known.append(device)
        owner = {key: args[key] for key in ("Module", "Op", "Phase") if key in args}
        return known.index(device), self.detail(owner)

    def _name(self, event: JsonObject) -> None:
        args = event.get("args")
        name = args.get("name") if type(args) is dict else None
        if event.get("name") == "thread_name" and type(name) is str and len(self.thread_names) < 1000:
            key = (event.get("pid"), event.get("tid"))
            if all(type(part) in (int, str) for part in key):
                self.thread_names[key] = _clip(name)


def _clip(text: str) -> str:
    """Truncate a name to ``LONGEST_NAME`` characters."""
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


def _nanoseconds(value: object, key: str) -> int:
    """Convert the format's microseconds to integer nanoseconds."""
    if type(value) is int and -_ORIGIN_LIMIT < value < _ORIGIN_LIMIT:
        return value * 1000
    if type(value) is float and math.isfinite(value * 1000):
        return round(value * 1000)
    raise Unusable(f"`{key}` is not a number")


def _integer(args: JsonObject, key: str) -> int:
    value = args.get(key)
    if type(value) is not int or not -_ORIGIN_LIMIT < value < _ORIGIN_LIMIT:
        raise Unusable(f"`{key}` of [memory] is not an integer")
    return value
