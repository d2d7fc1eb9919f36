"""Windows of the timeline: as many spans as are visible, out of any number.

A worker packs the levels of each lane into bytes; ``Timeline`` reads them in place. Within a level spans are
sorted and disjoint, so a window costs a few binary searches per drawn span: spans narrower than a pixel are
joined with their neighbours, and the search continues after that pixel.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tenon_dashboard.collect import Collected, JsonObject
from tenon_dashboard.parts import Swept

_LENGTH = struct.Struct("<q")
_COLUMNS = (("start", "q"), ("duration", "q"), ("label", "i"), ("detail", "i"))
#: The label of spans that are drawn as one because each is narrower than a pixel.
JOINED = -1


def pack(collected: Collected, swept: Swept) -> bytes:
    """Encode lanes, labels and details as JSON, followed by the columns of every level."""
    lanes = []
    columns: list[bytes] = []
    for key, levels in swept.levels.items():
        name = collected.thread_names.get(key, collected.lanes[key].name)
        lanes.append({"name": name, "levels": [len(level.start) for level in levels]})
        columns += [getattr(level, column).tobytes() for level in levels for column, _ in _COLUMNS]
    head = json.dumps({"lanes": lanes, "labels": collected.labels, "details": collected.details}).encode()
    head += b" " * (-len(head) % 8)
    return b"".join([_LENGTH.pack(len(head)), head, *columns])


@dataclass(slots=True)
class Spans:
    """The columns of one level, in the bytes that a worker sent."""

    start: Sequence[int]
    duration: Sequence[int]
    label: Sequence[int]
    detail: Sequence[int]


class Timeline:
    """The packed spans of one file."""

    def __init__(self, data: bytes) -> None:
        view = memoryview(data)
        (size,) = _LENGTH.unpack_from(data)
        head = json.loads(data[8 : 8 + size])
        self.labels: list[list[str]] = head["labels"]
        self.details: list[JsonObject] = head["details"]
        self.lanes: list[JsonObject] = head["lanes"]
        self.levels: list[list[Spans]] = []
        at = 8 + size
        for lane in self.lanes:
            levels = []
            for count in lane["levels"]:
                columns = []
                for _, code in _COLUMNS:
                    width = count * (8 if code == "q" else 4)
                    columns.append(view[at : at + width].cast(code))  # type: ignore[call-overload]
                    at += width
                levels.append(Spans(*columns))
            self.levels.append(levels)

    def window(self, lane: int, begin: int, end: int, pixel: int) -> list[list[list[int]]]:
        """Return for each level rows [start, duration, label, detail], or [start, duration, -1, count]."""
        return [list(_window(spans, begin, end, pixel)) for spans in self.levels[lane]]

    def count(self, labels: frozenset[int]) -> int:
        """Return how many spans have one of these labels."""
        chosen = self._chosen(labels)
        return sum(int(chosen[spans.label].sum()) for levels in self.levels for spans in levels)

    def _chosen(self, labels: frozenset[int]) -> np.ndarray:
        chosen = np.zeros(len(self.labels), np.bool_)
        chosen[list(labels)] = True
        return chosen

    def following(self, labels: frozenset[int], after: int, back: bool) -> tuple[int, int, int, int] | None:
        """Return (start, lane, level, index) of the next such span after a time, or of the one before."""
        best, chosen = None, self._chosen(labels)
        for lane, levels in enumerate(self.levels) if labels else ():
            for depth, spans in enumerate(levels):
                if back:
                    indices = np.flatnonzero(chosen[spans.label[: bisect_left(spans.start, after)]])[-1:]
                else:
                    first = bisect_right(spans.start, after)
                    indices = first + np.flatnonzero(chosen[spans.label[first:]])[:1]
                for i in indices.tolist():
                    here = (spans.start[i], lane, depth, i)
                    if best is None or (here > best if back else here < best):
                        best = here
        return best


def _window(spans: Spans, begin: int, end: int, pixel: int) -> Iterator[list[int]]:
    start, duration = spans.start, spans.duration
    i = bisect_right(start, begin) - 1
    if i < 0 or start[i] + duration[i] <= begin:
        i += 1
    last = bisect_left(start, end)
    while i < last:
        if duration[i] >= pixel:
            yield [start[i], duration[i], spans.label[i], spans.detail[i]]
            i += 1
            continue
        j = max(i + 1, bisect_left(start, start[i] + pixel, i, last))
        if duration[j - 1] >= pixel:  # it begins within the pixel but is wider: drawn by itself
            j -= 1
        if j - i == 1:
            yield [start[i], duration[i], spans.label[i], spans.detail[i]]
        else:
            yield [start[i], start[j - 1] + duration[j - 1] - start[i], JOINED, j - i]
        i = j
