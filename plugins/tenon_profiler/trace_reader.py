"""Read trace files, complete or not: their size bounds what reading costs, and each error names the file.

Of a file that is being written, or whose writer was killed, everything that was flushed is read. A file may
come from anybody: a line has a limit, and so has what is decompressed, and values must be of the types that
``trace.py`` writes.
"""

from __future__ import annotations

import json
import os
import re
import stat
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NoReturn, TypeAlias

from tenon.extend import errors
from tenon_profiler.events import Event
from tenon_profiler.trace import Header, TraceObject

#: The size of the blocks in which files are read and decompressed.
_BLOCK = 1 << 16
#: The most bytes of a line.
LONGEST_LINE = 4 << 20
#: Bytes of text that any file may have, and how many more for each of its own. Those of a compressed trace
#: are below 40.
FREE, FACTOR = 1 << 26, 100
_MARKER = ', "traceEvents": ['
_Types: TypeAlias = Mapping[str, type | tuple[type, ...]]
#: The types of values of events, of headers, and of their clocks; events and metadata may lack some.
_EVENT: _Types = {
    "ph": str, "cat": str, "name": str, "args": dict, "ts": (int, float), "dur": (int, float), "tid": int,
    "pid": int,
}  # fmt: skip
_NEEDED = frozenset({"name", "ts", "tid"})
_TENON: _Types = {"rank": int, "pid": int, "host": str, "started_ns": int, "clock": dict}
_CLOCK: _Types = {"id": str, "aligned": bool, "error_ns": int}


def read_trace(path: str | os.PathLike[str]) -> tuple[Header, Iterator[TraceObject]]:
    """Return the header of a trace and an iterator over its events.

    TraceError if there is no header, and by the iterator at an event that ``TraceWriter`` does not write. Of
    a file that is being written, or whose writer was killed, the iterator yields what was flushed.
    """
    lines = _lines(Path(path))
    try:
        first = next(lines, "").rstrip()
        if not first.endswith(_MARKER):
            raise ValueError("its first line is not a header")
        header = _parsed(first[: -len(_MARKER)] + "}")
        if not isinstance(header, dict) or not isinstance(header.get("tenon"), dict):
            raise ValueError('its header has no "tenon"')
        if type(header.get("baseTimeNanoseconds")) is not int:
            raise ValueError('its header has no number "baseTimeNanoseconds"')
        own = header["tenon"]
        _check(own, _TENON, _TENON, "its header")
        _check(own["clock"], _CLOCK, _CLOCK, "its header's clock")
        if not re.fullmatch(r"[\w.-]*", own["host"]) or type(own.get("cycle", 0)) is not int:
            raise ValueError(f"its header has the host {own['host']!r:.60}, cycle {own.get('cycle')!r:.60}")
    except ValueError as error:
        raise errors.TraceError(f"{path} is not a trace that tenon.profiler wrote: {error}.") from error
    return header, _events(lines, path)


def event_of(item: TraceObject, base: int) -> Event | None:
    """Convert a trace's JSON object to an ``Event``; None for metadata of processes and threads."""
    args = item.get("args", {})
    if item.get("ph") not in ("X", "i") or "cat" not in item:
        return None
    begin = base + round(item["ts"] * 1000)
    end = begin + round(item.get("dur", 0) * 1000)
    return Event(item["cat"], item["name"], item["tid"], begin, end, args)


def _events(lines: Iterator[str], path: str | os.PathLike[str]) -> Iterator[TraceObject]:
    number, broken = 1, ""
    try:
        for line in lines:
            if broken:
                raise ValueError(broken)
            number += 1
            if line.startswith("]"):
                return
            try:
                event = _parsed(line.rstrip().removesuffix(","))
            except ValueError as error:
                broken = str(error)  # may be the last line, of an incomplete file
                continue
            if not isinstance(event, dict):
                raise ValueError(f"a {type(event).__name__} stands in an event's place")
            is_span = event.get("ph") in ("X", "i") and "cat" in event
            _check(event, _EVENT, _NEEDED if is_span else (), "an event")
            yield event
    except ValueError as error:
        raise errors.TraceError(f"{path} is damaged at line {number}: {error}.") from error


def _parsed(text: str) -> object:
    """The value of JSON ``text``; ValueError if it is none, or has numbers that are not finite."""
    try:
        value: object = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("its values are nested too deep") from None
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _check(found: TraceObject, types: _Types, needed: Collection[str], what: str) -> None:
    """Raise ValueError unless the values of ``found`` have these types, and those ``needed`` are there."""
    for name, kind in types.items():
        if name not in found and name not in needed:
            continue
        value = found.get(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{what} has the {name} {value!r:.60}")
        if isinstance(value, (int, float)) and not -(2.0**63) <= value <= 2.0**63:
            raise ValueError(f"{what} has the {name} {value!r:.60}, out of range")


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file, a last incomplete one too; TraceError if it has no file's lines."""
    held: list[bytes] = []  # the pieces of an incomplete line
    length = 0
    with _opened(path) as file:
        for data in _inflated(file, path):
            first, *others = data.split(b"\n")
            held.append(first)
            length += len(first)
            if length > LONGEST_LINE:
                raise errors.TraceError(f"{path} has a line of more than {LONGEST_LINE:,} bytes.")
            for other in others:
                yield b"".join(held).decode("utf-8", "replace")
                held, length = [other], len(other)
    if length:
        yield b"".join(held).decode("utf-8", "replace")


def _inflated(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Yield the content of a file in blocks, decompressed if it is compressed."""
    unzip = zlib.decompressobj(31) if file.read(2) == b"\x1f\x8b" else None
    file.seek(0)
    packed = text = 0
    while block := file.read(_BLOCK):
        packed += len(block)
        while block:
            if unzip is None:
                data, block = block, b""
            else:
                try:
                    data = unzip.decompress(block, _BLOCK)
                except zlib.error:
                    return
                block = unzip.unconsumed_tail
            text += len(data)
            if text > FREE + FACTOR * packed:
                raise errors.TraceError(
                    f"{path} decompresses to more than {FACTOR} times its size: no trace does."
                )
            yield data


def _opened(path: Path) -> BinaryIO:
    """Open a regular file; TraceError for what could block or have no end, such as pipes and devices."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    file = os.fdopen(handle, "rb")
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        file.close()
        raise errors.TraceError(f"{path} is not a regular file.")
    return file
