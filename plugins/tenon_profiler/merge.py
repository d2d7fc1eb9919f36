"""Merge the traces of all ranks of a run, on the clock of rank 0.

The times of ranks on other hosts than rank 0's are corrected by their collectives, within the bounds that
``tenon train`` or ``observe.align`` measured: see ``drift.py``.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tenon.extend import errors
from tenon_profiler.drift import Line, line
from tenon_profiler.trace import PART, Header, TraceObject
from tenon_profiler.trace_reader import read_trace

NAME = "merged.trace.json.gz"
PATTERNS = ("*.pt.trace.json", "*.pt.trace.json.gz")


def find_traces(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the trace files in ``folder``, complete or not, in order of their names."""
    paths = [p for pattern in PATTERNS for end in ("", PART) for p in Path(folder).glob(pattern + end)]
    if not paths:
        raise errors.TraceError(
            f"no traces in {str(folder)!r}: no file *.pt.trace.json[.gz]. Record some with `tenon train"
            " --profile`."
        )
    return sorted(paths)


def merge(folder: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """Write all traces of ``folder`` to ``path`` (``merged.trace.json.gz`` there) and return it."""
    target = Path(folder) / NAME if path is None else Path(path)
    traces = [*aligned(folder)]
    first = traces[0][0]
    with replacement_of(target) as part, gzip.open(part, "wt", compresslevel=4) as file:
        head = {k: v for k, v in first.items() if k != "distributedInfo"}
        head["tenon"] = {**first["tenon"], "merged": [trace.name for trace in find_traces(folder)]}
        file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        count = 0
        for header, events in traces:
            for event in _of_rank(header["tenon"]["rank"], events):
                file.write((",\n" if count else "") + json.dumps(event))
                count += 1
        file.write(f'\n], "tenonEnd": {{"events": {count}, "dropped": 0}}}}\n')
    return target


@contextmanager
def replacement_of(path: Path) -> Iterator[Path]:
    """Yield a temporary path that is renamed to ``path``, or deleted on an error."""
    part = path.with_name(path.name + PART)
    try:
        yield part
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    os.replace(part, path)


def aligned(folder: str | os.PathLike[str]) -> Iterator[tuple[Header, Iterator[TraceObject]]]:
    """Yield header and events of each trace of ``folder``, in order of ranks, on rank 0's clock.

    Times count from the first trace's base, to which every header is set; ``started_ns`` is on that clock,
    too.
    """
    traces = find_traces(folder)
    headers = [read_trace(trace)[0] for trace in traces]
    order = sorted(range(len(traces)), key=lambda i: (headers[i]["tenon"]["rank"], traces[i].name))
    first = headers[order[0]]
    base = int(first["baseTimeNanoseconds"])
    for i in order:
        own = int(headers[i]["baseTimeNanoseconds"])
        shift = _shift(first, headers[i], traces[order[0]], traces[i])
        move, tenon = _time_shift(shift, own, own - base), headers[i]["tenon"]
        tenon["started_ns"] = base + round(1000 * move((tenon["started_ns"] - own) / 1000))
        yield {**headers[i], "baseTimeNanoseconds": base}, _shifted(traces[i], move)


def _time_shift(shift: Line, base: int, later: int) -> Callable[[float], float]:
    """Return a function from microseconds since ``base`` on a rank's clock to those on rank 0's.

    ``later`` is the distance of their bases in nanoseconds.
    """
    return lambda when: when + (later + shift(base + 1000 * when)) / 1000


def _shifted(path: Path, move: Callable[[float], float]) -> Iterator[TraceObject]:
    """Yield the events of a trace with their times converted by ``move``."""
    for event in read_trace(path)[1]:
        if event.get("ph") != "M":
            begin, length = event["ts"], event.get("dur")
            event["ts"] = round(move(begin), 3)
            if length is not None:
                event["dur"] = round(move(begin + length) - move(begin), 3)
        yield event


def _of_rank(rank: int, events: Iterator[TraceObject]) -> Iterator[TraceObject]:
    """Yield ``events`` with their rank as process id, and for kernels 1000 times (device + 1) more."""
    order = {"sort_index": rank}
    yield {"ph": "M", "name": "process_sort_index", "pid": rank, "tid": 0, "ts": 0, "args": order}
    for event in events:
        if event.get("ph") == "i" and event.get("s") == "g":
            continue
        gpu = event.get("cat") == "kernel"
        event["pid"] = rank if not gpu else 1000 * (int(event["pid"]) + 1) + rank
        yield event


def _shift(first: Header, other: Header, first_path: Path, path: Path) -> Line:
    """Return how far the other trace's clock is behind the first's."""
    one, two = first["tenon"]["clock"], other["tenon"]["clock"]
    if one["id"] == two["id"]:
        return Line()
    known = {}
    if one["aligned"] and two["aligned"]:
        known = {"at": two.get("at_ns") or other["tenon"]["started_ns"], "error": two["error_ns"]}
    return line(_waits(first_path, first), _waits(path, other), **known)


def _waits(path: Path, header: Header) -> dict[object, tuple[int, int]]:
    """Return when this rank entered and left the wait of each collective, by kind, group and number."""
    base = int(header["baseTimeNanoseconds"])
    waits: dict[object, tuple[int, int]] = {}
    for event in read_trace(path)[1]:
        args = event.get("args", {})
        if event.get("cat") == "tenon_wait" and "Number" in args:
            begin = base + round(event["ts"] * 1000)
            waits[event["name"], args.get("Group"), args["Number"]] = (
                begin,
                begin + round(event["dur"] * 1000),
            )
    return waits
