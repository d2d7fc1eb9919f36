"""Read events that are one per line, formatted as tenon's profiler does, a block of lines at a time.

Two regular expressions split a block into columns. Each distinct beginning of a line (category, name, thread)
and each distinct end (arguments) is parsed as JSON, strictly, once; the rest is numbers. A block with any
other line, or with invalid numbers, is left to ``Collected.add``, event by event, which reports what is
wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon_dashboard.collect import LONGEST_SPAN, MOST_SPANS, Collected, LaneKey, Unusable, parse

_TEXT = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
_TIME = r"\d{1,15}\.\d{3}"
_INTEGER = r"(0|-?[1-9]\d{0,17})"
_PLACE = r'"pid": ?-?\d+, ?"tid": ?-?\d+'
#: Numbers at the beginning of the arguments that differ between events and that no view shows.
_OWN = (
    r'(?:"(?:External id|Sequence number|Python id|Python parent id)": ?(?:\d+|null)(?:, ?(?=")|(?=\}\})))*'
)
#: (beginning, time, duration, arguments)
_SPAN = re.compile(
    rf'\n\{{"ph": ?"X", ?("cat": ?{_TEXT}, ?"name": ?{_TEXT}, ?{_PLACE}), ?"ts": ?({_TIME}), ?'
    rf'"dur": ?({_TIME}), ?"args": ?\{{{_OWN}(.*)\}}\}},?(?=\n)',
    re.ASCII,
)
#: (time, bytes, address, allocated, reserved, arguments)
_MEMORY = re.compile(
    rf'\n\{{"ph": ?"i", ?"s": ?"t", ?"cat": ?"cpu_instant_event", ?"name": ?"\[memory\]", ?{_PLACE}, ?'
    rf'"ts": ?({_TIME}), ?"args": ?\{{"Bytes": ?{_INTEGER}, ?"Addr": ?{_INTEGER}, ?'
    rf'"Total Allocated": ?{_INTEGER}, ?"Total Reserved": ?{_INTEGER}, ?("Device Type": .*)\}}\}},?(?=\n)',
    re.ASCII,
)
#: Other lines, of which there are few: names of threads, the end of the recording.
_OTHER = re.compile(r'\n(?!\{"ph": ?"X"|\{"ph": ?"i", ?"s": ?"t")(.+)')
_TIMED = ("Bytes", "Addr", "Total Allocated", "Total Reserved")
#: The largest number of cached arguments, which repeat within a program.
MOST_KNOWN = 50_000


class Lines:
    """Adds events to a ``Collected`` by whole lines."""

    def __init__(self, collected: Collected) -> None:
        self.collected = collected
        #: Add one event, however it is formatted.
        self.add = collected.add
        #: Lanes and labels by the beginning of a line; details, and devices with details, by arguments.
        self._lanes: dict[str, LaneKey] = {}
        self._labels: dict[str, int] = {}
        self._details: dict[str, int] = {}
        self._owners: dict[str, tuple[int, int]] = {}

    def take(self, block: str) -> bool:
        """Add the events of ``block``, lines between newlines; return False if it needs ``add`` instead."""
        spans, lines = _SPAN.findall(block), block.count("\n") - 1
        changes = _MEMORY.findall(block) if len(spans) < lines else []
        others: list[object] = []
        try:
            if len(spans) + len(changes) != lines:
                matches = _OTHER.findall(block)
                if len(spans) + len(changes) + len(matches) != lines:
                    return False
                others = [parse(text.rstrip(",")) for text in matches]
            columns = self._spans(spans) if spans else None
            memory = self._changes(changes) if changes else None
        except (Unusable, ValueError):
            return False
        if columns is not None:
            self._add_spans(*columns)
        if memory is not None:
            self.collected.memory.extend(memory)
        for event in others:
            self.add(event)
        return True

    def _moments(self, texts: Sequence[str]) -> np.ndarray:
        moments = nanoseconds(texts)
        if self.collected.origin is None:
            self.collected.origin = int(moments[0])
        return moments - self.collected.origin

    def _spans(self, rows: list[tuple[str, str, str, str]]) -> tuple[Any, ...]:  # Any: heads, then arrays
        heads, starts, lengths, rests = zip(*rows, strict=True)
        duration = nanoseconds(lengths)
        if self.collected.spans + len(rows) > MOST_SPANS or duration.max() >= LONGEST_SPAN:
            raise Unusable("`Collected.add` reports which")
        kinds = set(heads)
        for head in kinds.difference(self._labels):
            self._lanes[head], self._labels[head] = self.collected.place(parse(f"{{{head}}}"))
        if len(self._details) > MOST_KNOWN:
            self._details.clear()
        for rest in set(rests).difference(self._details):
            args = parse(f"{{{rest}}}")
            self._details[rest] = self.collected.detail(args) if args else 0
        detail = np.fromiter(map(self._details.__getitem__, rests), np.int32, len(rows))
        label = np.fromiter(map(self._labels.__getitem__, heads), np.int32, len(rows))
        return heads, self._moments(starts), duration, label, detail

    def _add_spans(self, heads: Sequence[str], *columns: np.ndarray) -> None:
        collected, (start, duration, *_) = self.collected, columns
        lanes = {self._lanes[head] for head in set(heads)}
        for key in lanes:
            mask: slice | np.ndarray = slice(None)
            if len(lanes) > 1:
                mask = np.fromiter((self._lanes[head] == key for head in heads), np.bool_, len(heads))
            lane = collected.lanes[key]
            for own, column in zip(
                (lane.start, lane.duration, lane.label, lane.detail), columns, strict=True
            ):
                own.frombytes(column[mask].tobytes())
        collected.seen(int(start.min()), int((start + duration).max()))
        collected.spans += len(heads)

    def _changes(self, rows: list[tuple[str, ...]]) -> list[np.ndarray]:
        moments, sizes, addresses, allocated, reserved, rests = zip(*rows, strict=True)
        if len(self.collected.memory.at) + len(rows) > MOST_SPANS:
            raise Unusable("`Collected.add` reports which")
        if len(self._owners) > MOST_KNOWN:
            self._owners.clear()
        for rest in set(rests).difference(self._owners):
            args = parse(f"{{{rest}}}")
            if any(key in args for key in _TIMED):
                raise Unusable("a repeated key")
            self._owners[rest] = self.collected.owner(args)
        owners = list(map(self._owners.__getitem__, rests))
        counts = [np.fromiter(map(int, texts), np.int64, len(rows)) for texts in (sizes, addresses)]
        totals = [np.fromiter(map(int, texts), np.int64, len(rows)) for texts in (allocated, reserved)]
        device, detail = (np.fromiter(column, np.int64, len(rows)) for column in zip(*owners, strict=True))
        return [self._moments(moments), *counts, device, *totals, detail]


def nanoseconds(texts: Sequence[str]) -> np.ndarray:
    """Convert texts of microseconds with three decimals to integer nanoseconds."""
    return np.fromiter(map(int, ",".join(texts).replace(".", "").split(",")), np.int64, len(texts))
