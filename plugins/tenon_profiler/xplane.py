"""Traces for xprof: ``plugins/profile/<run>/<host>_<rank>.xplane.pb``, one file per rank.

A file is a message XSpace of tsl's ``xplane.proto`` in protocol buffers' encoding: consecutive fields of
number and wire type, followed by an integer with seven bits per byte, eight bytes of a float, or a length and
as many bytes. Names of events and of their arguments are stored once, with a number.
"""

from __future__ import annotations

import json
import os
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from tenon_profiler.events import INSTANT
from tenon_profiler.merge import aligned, replacement_of
from tenon_profiler.overview import STEP
from tenon_profiler.trace import TraceObject

#: Where TensorBoard's profile plugin looks.
FOLDER = Path("plugins", "profile")
#: xprof's names of some arguments; others keep their names.
_STATS = {"FLOPs": "flops", "Bytes": "bytes_accessed", "correlation": "correlation_id"}
#: xprof's names of the arguments of memory events.
_MEMORY = {"Addr": "addr", "Total Allocated": "bytes_allocated", "Op": "tf_op"}


def varint(number: int) -> bytes:
    """Encode an integer of at most 64 bits with seven bits per byte, the lowest first.

    >>> varint(300).hex(), len(varint(-1))
    ('ac02', 10)
    """
    rest, encoded = number & (1 << 64) - 1, bytearray()
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def field(number: int, value: int | float | str | bytes | bytearray) -> bytes:
    """Encode a field of a message; a nested message is passed as bytes.

    >>> field(1, 150).hex(), field(2, "testing").hex()
    ('089601', '120774657374696e67')
    """
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


class Plane:
    """The lines of a host or a device."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lines: dict[int, list[tuple[int, int, bytes]]] = {}
        self._titles: dict[int, str] = {}
        self._names: dict[str, int] = {}
        self._stats: dict[str, int] = {}

    def title(self, line: int, name: str) -> None:
        """Name a line."""
        self._titles[line] = name

    def add(self, line: int, name: str, begin: int, length: int, stats: Mapping[str, object]) -> None:
        """Add an event; times are in picoseconds."""
        message = bytearray(field(1, self._names.setdefault(name, len(self._names) + 1)))
        message += field(2, begin) + field(3, length)
        for key, value in stats.items():
            message += self._stat(key, value)
        self._lines.setdefault(line, []).append((begin, -length, bytes(message)))

    def _stat(self, key: str, value: object) -> bytes:
        number = field(1, self._stats.setdefault(key, len(self._stats) + 1))
        if isinstance(value, float):
            return field(4, number + field(2, value))
        if isinstance(value, int):
            return field(4, number + field(4, value))
        text = value if isinstance(value, str) else json.dumps(value)
        known = self._stats.setdefault(text, len(self._stats) + 1)
        return field(4, number + field(7, known))

    def encoded(self, number: int) -> bytes:
        """Return the message XPlane."""
        parts = [field(1, number), field(2, self.name)]
        for line, events in self._lines.items():
            events.sort(key=lambda event: event[:2])
            head = field(1, line) + field(2, self._titles.get(line, f"thread {line}"))
            parts.append(field(3, head + b"".join(field(4, message) for *_, message in events)))
        for field_number, names in ((4, self._names), (5, self._stats)):
            for name, own in names.items():
                parts.append(field(field_number, field(1, own) + field(2, field(1, own) + field(2, name))))
        return b"".join(parts)


def export_xplane(folder: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> list[Path]:
    """Write the traces of ``folder`` for xprof, below it or ``out``, all on the clock of rank 0.

    Each profiled cycle is a run of its own: ``NAME``, ``NAME_1``, ... after the folder.
    """
    written = []
    top = Path(folder if out is None else out) / FOLDER
    traces = [*aligned(folder)]
    start = min(header["tenon"]["started_ns"] for header, _ in traces)
    for header, events in traces:
        own, name = header["tenon"], Path(folder).resolve().name
        run = top / (f"{name}_{own['cycle']}" if own.get("cycle") else name)
        run.mkdir(parents=True, exist_ok=True)
        path = run / f"{own['host']}_{own['rank']}.xplane.pb"
        with replacement_of(path) as part:
            part.write_bytes(space(events, start - int(header["baseTimeNanoseconds"]), own["host"]))
        written.append(path)
    return written


def space(events: Iterable[TraceObject], start: int, host: str) -> bytes:
    """Return the message XSpace of a rank's events, whose times count from their time ``start`` in ns."""
    planes, peaks = {"": Plane("/host:CPU")}, Counter[str]()
    for event in events:
        kind, args = event.get("ph"), event.get("args", {})
        if kind == "M" and event["name"] == "thread_name":
            planes[""].title(event["tid"], args["name"])
        if kind not in ("X", "i") or "cat" not in event:
            continue
        begin, length = round(event["ts"] * 1e6) - 1000 * start, round(event.get("dur", 0) * 1e6)
        if event["cat"] == INSTANT:
            name = "MemoryAllocation" if args["Bytes"] > 0 else "MemoryDeallocation"
            size, index = abs(args["Bytes"]), args.get("Device Id", -1)
            device = "cpu" if index < 0 else f"cuda:{index}"
            stats = {named: args[key] for key, named in _MEMORY.items() if key in args}
            peaks[device] = max(peaks[device], args["Total Allocated"])
            stats["peak_bytes_in_use"] = peaks[device]
            stats |= {"allocation_bytes": size, "requested_bytes": size, "allocator_name": device}
            planes[""].add(event["tid"], name, begin, 0, stats)
            continue
        stats = {_STATS.get(key, key): value for key, value in args.items() if value is not None}
        if event["cat"] == "kernel":
            index, line = args["device"], args.get("stream", 0)
            plane = planes.setdefault(index, Plane(f"/device:GPU:{index}"))
            plane.title(line, f"Stream #{line}")
            plane.add(line, event["name"], begin, length, stats | {"tf_op": op_name(event)})
            continue
        name = event["name"]
        if name.startswith(STEP):
            stats |= {"step_num": int(name.removeprefix(STEP)), "_r": 1}
            name = "train"
        elif event["cat"] == "cpu_op":
            name = op_name(event)
        planes[""].add(event["tid"], name, begin, length, stats)
    parts = [field(1, plane.encoded(number)) for number, plane in enumerate(planes.values(), 1)]
    return b"".join(parts) + field(4, host)


def op_name(event: TraceObject) -> str:
    """Return an op's name in xprof's format: the module as a path, the op, and the op as type.

    >>> op_name({"name": "tenon::linear", "args": {"Module": "Net.head"}})
    'Net/head/linear:linear'
    """
    name = event["name"].removeprefix("tenon::")
    path = event.get("args", {}).get("Module", "").replace(".", "/")
    return f"{path}/{name}:{name}" if path else f"{name}:{name}"
