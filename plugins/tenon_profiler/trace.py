"""Trace files: Kineto's JSON, one event per line, so that files can be read while they are written.

A file is opened as ``NAME.part`` and renamed when it is complete; what was flushed before a process was
killed can be read. The format is documented in ``docs/guide/profiler.md``. Next: ``trace_reader.py``.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

from tenon_profiler.events import INSTANT, Arguments, Event

#: The header of a trace file: JSON values by name.
Header: TypeAlias = dict[str, Any]
#: The JSON object of an event.
TraceObject: TypeAlias = dict[str, Any]
#: The ending of the names of incomplete files.
PART = ".part"
#: Maximum number of cached argument texts.
_MANY = 20_000
#: The number of lines that are in memory at a time.
_LINES = 5_000


class TraceWriter:
    """Writes ``header``, then events as they arrive, to ``path``; ``close`` completes the file."""

    def __init__(self, path: str | os.PathLike[str], header: Header) -> None:
        self.path = Path(path)
        self.part = self.path.with_name(self.path.name + PART)
        self.base = int(header["baseTimeNanoseconds"])
        self.pid = int(header["tenon"]["pid"])
        self.count = 0
        self._external = 0
        self._texts: dict[int, tuple[Arguments, str]] = {}
        self._threads: set[int] = set()
        self._last = 0
        self._file = open(self.part, "wb")  # noqa: SIM115 - closed by close() or abandon()
        self._zip = zlib.compressobj(3, zlib.DEFLATED, 31) if self.path.suffix == ".gz" else None
        text = json.dumps(header)
        try:
            self._put(f'{text[:-1]}, "traceEvents": [\n{json.dumps(self._process(header))}'.encode())
            self.flush()
        except OSError:
            self.abandon()
            raise

    def _process(self, header: Header) -> TraceObject:
        own = header["tenon"]
        name = {"name": f"rank {own['rank']} on {own['host']}"}
        return {"ph": "M", "name": "process_name", "pid": self.pid, "tid": 0, "ts": 0, "args": name}

    def write(self, events: Iterable[Event]) -> None:
        """Append events."""
        remaining = iter(events)
        while chunk := list(itertools.islice(remaining, _LINES)):
            if len(self._texts) > _MANY:
                self._texts.clear()
            lines = []
            for event in chunk:
                if event.tid not in self._threads and event.category != "kernel":
                    self._threads.add(event.tid)
                    lines.append(json.dumps(self._thread(event.tid)))
                lines.append(self._line(event))
                self._last = max(self._last, event.end)
            self.count += len(lines)
            self._put((",\n" + ",\n".join(lines)).encode())

    def _thread(self, tid: int) -> TraceObject:
        name = {"name": "main" if tid == self.pid else f"thread {tid}"}
        return {"ph": "M", "name": "thread_name", "pid": self.pid, "tid": tid, "ts": 0, "args": name}

    def _line(self, event: Event) -> str:
        cached = self._texts.get(id(event.args))
        if cached is None:
            # The dictionary is kept alive, so that no other one gets its id.
            cached = self._texts[id(event.args)] = (event.args, json.dumps(event.args)[1:-1])
        own = "" if event.own is None else json.dumps(event.own)[1:-1]
        category = event.category
        start = (event.begin - self.base) / 1000
        pid = event.get("device") if category == "kernel" else self.pid
        head = f'"cat":"{category}","name":{json.dumps(event.name)},"pid":{pid},"tid":{event.tid}'
        if category == INSTANT:
            args = f"{own},{cached[1]}"
            return f'{{"ph":"i","s":"t",{head},"ts":{start:.3f},"args":{{{args}}}}}'
        if category != "python_function" and (event.own is None or "External id" not in event.own):
            self._external += 1
            own = f'"External id":{self._external}' + (f",{own}" if own else "")
        args = f"{own},{cached[1]}" if cached[1] else own
        length = (event.end - event.begin) / 1000
        return f'{{"ph":"X",{head},"ts":{start:.3f},"dur":{length:.3f},"args":{{{args}}}}}'

    def flush(self) -> None:
        """Flush, so that readers see everything written so far."""
        if self._zip is not None:
            self._file.write(self._zip.flush(zlib.Z_SYNC_FLUSH))
        self._file.flush()

    def close(self) -> Path:
        """Write the end of the file and rename it; return its path."""
        end = {"ph": "i", "s": "g", "name": "Record Window End", "pid": self.pid, "tid": self.pid}
        end["ts"] = round((self._last - self.base) / 1000, 3) if self._last else 0
        foot = json.dumps({"events": self.count, "dropped": 0})
        self._put(f',\n{json.dumps(end)}\n], "tenonEnd": {foot}}}\n'.encode())
        if self._zip is not None:
            self._file.write(self._zip.flush(zlib.Z_FINISH))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self.part, self.path)
        return self.path

    def leave(self) -> None:
        """Stop writing; the incomplete file keeps its temporary name."""
        with contextlib.suppress(OSError):  # what is still buffered cannot be written either
            self._file.close()

    def abandon(self) -> None:
        """Stop writing and delete the file."""
        self.leave()
        self.part.unlink(missing_ok=True)

    def _put(self, data: bytes) -> None:
        self._file.write(data if self._zip is None else self._zip.compress(data))
