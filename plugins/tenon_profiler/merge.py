"""All ranks of a run in one trace, on the clock of rank 0.

Ranks that do not share rank 0's host are moved here by what their collectives tell of their clocks, within
what ``tenon train`` or ``observe.align`` knew of them: ``drift.py``.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tenon.extend import errors
from tenon_profiler.drift import Line, line
from tenon_profiler.trace import PART, read_trace

NAME = "merged.trace.json.gz"
PATTERNS = ("*.pt.trace.json", "*.pt.trace.json.gz")


def find_traces(folder: str | os.PathLike[str]) -> list[Path]:
    """Trace files in ``folder``, complete or not, in order of their names."""
    found = [p for pattern in PATTERNS for end in ("", PART) for p in Path(folder).glob(pattern + end)]
    if not found:
        raise errors.TraceError(
            f"no traces in {str(folder)!r}: no file *.pt.trace.json[.gz]. Make some with `tenon train"
            " --profile`."
        )
    return sorted(found)


def merge(folder: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """Write all traces of ``folder`` to ``path`` (``merged.trace.json.gz`` there) and return it."""
    target = Path(folder) / NAME if path is None else Path(path)
    traces = find_traces(folder)
    headers = [read_trace(trace)[0] for trace in traces]
    order = sorted(range(len(traces)), key=lambda i: (headers[i]["tenon"]["rank"], traces[i].name))
    first = headers[order[0]]
    base = int(first["baseTimeNanoseconds"])
    shifts = {i: _shift(first, headers[i], traces[order[0]], traces[i]) for i in order}
    beside = target.with_name(target.name + PART)
    try:
        with gzip.open(beside, "wt", compresslevel=4) as file:
            head = {k: v for k, v in first.items() if k != "distributedInfo"}
            head["tenon"] = {**first["tenon"], "merged": [trace.name for trace in traces]}
            file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
            count = 0
            for i in order:
                own = int(headers[i]["baseTimeNanoseconds"])
                for event in _moved(traces[i], headers[i]["tenon"], _mover(shifts[i], own, own - base)):
                    file.write((",\n" if count else "") + json.dumps(event))
                    count += 1
            file.write(f'\n], "tenonEnd": {{"events": {count}, "dropped": 0}}}}\n')
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    os.replace(beside, target)
    return target


def _mover(shift: Line, base: int, later: int) -> Callable[[float], float]:
    """From microseconds since ``base`` on a rank's clock to those on rank 0's, ``later`` nanoseconds more."""
    return lambda when: when + (later + shift(base + 1000 * when)) / 1000


def _moved(path: Path, own: dict[str, Any], move: Callable[[float], float]) -> Iterator[dict[str, Any]]:
    """Events of one rank, whose number is the process, when they were on another clock."""
    rank = own["rank"]
    yield {
        "ph": "M",
        "name": "process_sort_index",
        "pid": rank,
        "tid": 0,
        "ts": 0,
        "args": {"sort_index": rank},
    }
    for event in read_trace(path)[1]:
        if event.get("ph") == "i" and event.get("s") == "g":
            continue
        gpu = event.get("cat") == "kernel"
        event["pid"] = rank if not gpu else 1000 * (int(event["pid"]) + 1) + rank
        if event.get("ph") != "M":
            begin, length = event["ts"], event.get("dur")
            event["ts"] = round(move(begin), 3)
            if length is not None:
                event["dur"] = round(move(begin + length) - move(begin), 3)
        yield event


def _shift(first: dict[str, Any], other: dict[str, Any], first_path: Path, path: Path) -> Line:
    """How far the other's clock is behind the first's."""
    one, two = first["tenon"]["clock"], other["tenon"]["clock"]
    if one["id"] == two["id"]:
        return Line()
    known = {}
    if one["aligned"] and two["aligned"]:
        known = {"at": two.get("at_ns") or other["tenon"]["started_ns"], "error": two["error_ns"]}
    return line(_waits(first_path, first), _waits(path, other), **known)


def _waits(path: Path, header: dict[str, Any]) -> dict[Any, tuple[int, int]]:
    """When this rank came to collectives and when it left their waits, by what tells collectives apart."""
    base = int(header["baseTimeNanoseconds"])
    found = {}
    for event in read_trace(path)[1]:
        if event.get("cat") == "tenon_wait" and "Number" in event.get("args", {}):
            begin = base + round(event["ts"] * 1000)
            found[event["name"], event["args"]["Number"]] = begin, begin + round(event["dur"] * 1000)
    return found
