"""All ranks of a run in one trace, on the clock of rank 0.

Ranks whose files were not aligned when they were written, by ``tenon train`` or ``observe.align``, and which
do not share a host's clock, are shifted here: collectives end their wait at the same time on all ranks.
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tenon.extend import errors
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
    with gzip.open(beside, "wt", compresslevel=4) as file:
        head = {k: v for k, v in first.items() if k != "distributedInfo"}
        head["tenon"] = {**first["tenon"], "merged": [trace.name for trace in traces]}
        file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        count = 0
        for i in order:
            by = (int(headers[i]["baseTimeNanoseconds"]) - base + shifts[i]) / 1000
            for event in _moved(traces[i], headers[i]["tenon"], by):
                file.write((",\n" if count else "") + json.dumps(event))
                count += 1
        file.write(f'\n], "tenonEnd": {{"events": {count}, "dropped": 0}}}}\n')
    os.replace(beside, target)
    return target


def _moved(path: Path, own: dict[str, Any], by: float) -> Iterator[dict[str, Any]]:
    """Events of one rank: its number is the process, what happened is ``by`` microseconds later."""
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
            event["ts"] = round(event["ts"] + by, 3)
        yield event


def _shift(first: dict[str, Any], other: dict[str, Any], first_path: Path, path: Path) -> int:
    """Nanoseconds by which the other's clock is behind the first's."""
    one, two = first["tenon"]["clock"], other["tenon"]["clock"]
    if (one["aligned"] and two["aligned"]) or one["id"] == two["id"]:
        return 0
    ends, others = _ends(first_path, first), _ends(path, other)
    gaps = [ends[key] - others[key] for key in ends.keys() & others.keys()]
    return round(statistics.median(gaps)) if gaps else 0


def _ends(path: Path, header: dict[str, Any]) -> dict[Any, int]:
    """When the waits for collectives ended, by what tells collectives apart."""
    base = int(header["baseTimeNanoseconds"])
    return {
        (event["name"], event["args"]["Number"]): base + round((event["ts"] + event["dur"]) * 1000)
        for event in read_trace(path)[1]
        if event.get("cat") == "tenon_wait" and "Number" in event.get("args", {})
    }
