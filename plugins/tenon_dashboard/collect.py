"""Check the events of a trace strictly and keep them as columns: 28 bytes a span, names and arguments once.

What is not of the type that it must have is counted with its reason and left out; nothing is converted.
Times become whole nanoseconds from the first event on.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

MOST_SPANS = 4_000_000
MOST_NAMES = 200_000
LONGEST_NAME = 300
#: Characters of all different arguments together; later ones are not kept.
MOST_DETAIL = 64 << 20
#: Of a span in nanoseconds: five hours. Longer ones would not sort behind those that start later.
LONGEST_SPAN = 1 << 44
_ORIGIN_LIMIT = 1 << 62
#: Arguments that no two events share, and that no view shows.
_UNIQUE = frozenset(
    {"External id", "correlation", "Ev Idx", "Sequence number", "Python id", "Python parent id", "Call stack"}
)


class Unusable(ValueError):
    """An event that cannot be used; the message is the reason, in few words."""


@dataclass(slots=True)
class Lane:
    """The spans of one thread or stream, in the order of the file."""

    name: str
    start: array[int] = field(default_factory=lambda: array("q"))
    duration: array[int] = field(default_factory=lambda: array("q"))
    label: array[int] = field(default_factory=lambda: array("i"))
    detail: array[int] = field(default_factory=lambda: array("i"))


@dataclass(slots=True)
class Collected:
    """Everything of one file that the views are made of."""

    #: (category, name) of each label, and what the arguments of spans say, both without repetition.
    labels: list[tuple[str, str]] = field(default_factory=list)
    details: list[dict[str, Any]] = field(default_factory=lambda: [{}])
    lanes: dict[tuple[Any, Any], Lane] = field(default_factory=dict)
    thread_names: dict[tuple[Any, Any], str] = field(default_factory=dict)
    #: (time, bytes, address, device, allocated, reserved, detail) of each change of memory.
    memory: list[tuple[int, int, int, str, int, int, int]] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    spans: int = 0
    #: What the first event of the file begins at; all times count from here, so the first may lie below zero.
    origin: int | None = None
    first: int = 0
    last: int = 0
    _label_of: dict[tuple[str, str], int] = field(default_factory=dict)
    _detail_of: dict[str, int] = field(default_factory=dict)
    _detail_size: int = 0

    def add(self, event: Any) -> None:
        """Take one event, or count why it cannot be used."""
        try:
            if type(event) is not dict:
                raise Unusable("an event is no object")
            phase = event.get("ph")
            if phase == "X":
                self._span(event)
            elif phase == "i" and event.get("name") == "[memory]":
                self._memory(event)
            elif phase == "M":
                self._name(event)
            elif type(phase) is not str:
                raise Unusable("`ph` is no text")
        except Unusable as error:
            self.skipped[str(error)] += 1

    def _span(self, event: dict[str, Any]) -> None:
        if self.spans >= MOST_SPANS:
            raise Unusable(f"more than {MOST_SPANS:,} spans in one file")
        name, category = event.get("name"), event.get("cat")
        if type(name) is not str or type(category) is not str:
            raise Unusable("`name` or `cat` is no text")
        start, duration = self._time(event.get("ts")), _nanoseconds(event.get("dur"), "dur")
        if not 0 <= duration < LONGEST_SPAN:
            raise Unusable("`dur` is negative or longer than hours")
        lane = self._lane(event)
        args = event.get("args")
        detail = self._detail(args) if args else 0
        key = (category, name)
        label = self._label_of.get(key)
        if label is None:
            label = self._new_label(key)
        lane.start.append(start)
        lane.duration.append(duration)
        lane.label.append(label)
        lane.detail.append(detail)
        self.first, self.last = min(self.first, start), max(self.last, start + duration)
        self.spans += 1

    def _time(self, value: Any) -> int:
        moment = _nanoseconds(value, "ts")
        if self.origin is None:
            self.origin = moment
        moment -= self.origin
        if not -_ORIGIN_LIMIT < moment < _ORIGIN_LIMIT:
            raise Unusable("`ts` is years away from the first one")
        return moment

    def _lane(self, event: dict[str, Any]) -> Lane:
        key = (event.get("pid"), event.get("tid"))
        if type(key[0]) not in (int, str) or type(key[1]) not in (int, str):
            raise Unusable("`pid` or `tid` is neither a number nor a text")
        lane = self.lanes.get(key)
        if lane is None:
            if len(self.lanes) >= 1000:
                raise Unusable("more than 1,000 threads in one file")
            lane = self.lanes[key] = Lane(_clip(f"{key[0]} / {key[1]}"))
        return lane

    def _new_label(self, key: tuple[str, str]) -> int:
        if len(self.labels) >= MOST_NAMES:
            raise Unusable(f"more than {MOST_NAMES:,} different names in one file")
        self.labels.append((_clip(key[0]), _clip(key[1])))
        return self._label_of.setdefault(key, len(self.labels) - 1)

    def _detail(self, args: Any) -> int:
        if type(args) is not dict:
            raise Unusable("`args` is no object")
        kept = {key: value for key, value in args.items() if key not in _UNIQUE}
        key = repr(kept)
        if len(key) > 20_000:
            raise Unusable("`args` is longer than 20,000 characters")
        found = self._detail_of.get(key)
        if found is None:
            self._detail_size += len(key)
            if len(self.details) >= MOST_NAMES or self._detail_size > MOST_DETAIL:
                return 0
            self.details.append(kept)
            found = self._detail_of[key] = len(self.details) - 1
        return found

    def _memory(self, event: dict[str, Any]) -> None:
        args = event.get("args")
        if type(args) is not dict:
            raise Unusable("`args` of [memory] is no object")
        if len(self.memory) >= MOST_SPANS:
            raise Unusable(f"more than {MOST_SPANS:,} changes of memory in one file")
        change = _whole(args, "Bytes")
        address = args.get("Addr", 0)
        if type(address) is not int:
            raise Unusable("`Addr` is no whole number")
        kind = _whole(args, "Device Type") if "Device Type" in args else 0
        index = _whole(args, "Device Id") if "Device Id" in args else -1
        device = "cpu" if kind == 0 else f"cuda:{index}"
        allocated = _whole(args, "Total Allocated")
        reserved = _whole(args, "Total Reserved") if "Total Reserved" in args else 0
        moment = self._time(event.get("ts"))
        owner = {key: args[key] for key in ("Module", "Op", "Phase") if key in args}
        self.memory.append((moment, change, address, device, allocated, reserved, self._detail(owner)))

    def _name(self, event: dict[str, Any]) -> None:
        args = event.get("args")
        name = args.get("name") if type(args) is dict else None
        if event.get("name") == "thread_name" and type(name) is str and len(self.thread_names) < 1000:
            key = (event.get("pid"), event.get("tid"))
            if all(type(part) in (int, str) for part in key):
                self.thread_names[key] = _clip(name)


def _clip(text: str) -> str:
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


def _nanoseconds(value: Any, key: str) -> int:
    """Microseconds, as the format has them, in whole nanoseconds."""
    if type(value) is int and -_ORIGIN_LIMIT < value < _ORIGIN_LIMIT:
        return value * 1000
    if type(value) is float and math.isfinite(value):
        return round(value * 1000)
    raise Unusable(f"`{key}` is no number")


def _whole(args: dict[str, Any], key: str) -> int:
    value = args.get(key)
    if type(value) is not int or not -_ORIGIN_LIMIT < value < _ORIGIN_LIMIT:
        raise Unusable(f"`{key}` of [memory] is no whole number")
    return value
