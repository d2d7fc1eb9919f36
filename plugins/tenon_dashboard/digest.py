"""Summarise one trace file for the views: computed once per reading of the file, small enough to keep."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from tenon_dashboard.collect import Collected
from tenon_dashboard.parts import COLLECTIVE_PREFIXES, Swept

MOST_ROWS = 5000
MOST_COLLECTIVES = 50_000
MOST_STEPS = 20_000
CURVE_POINTS = 600


def digest(collected: Collected, swept: Swept, header: dict[str, Any]) -> dict[str, Any]:
    """Sums of one file as plain data; times in nanoseconds, moments from the file's origin."""
    cells = [
        (collected.labels[label], collected.details[detail], cell)
        for (label, detail), cell in swept.sums.items()
    ]
    return {
        "origin": (collected.origin or 0) + base_of(header),
        "first": collected.first,
        "last": collected.last,
        "spans": collected.spans,
        "skipped": dict(collected.skipped.most_common(20)),
        "header": known_header(header),
        "steps": [[s.number, s.start, s.duration, *s.parts] for s in swept.steps[:MOST_STEPS]],
        "operators": operators(cells),
        "modules": modules(cells, collected),
        "memory": memory(collected),
        "kernels": kernels(cells),
        "collectives": collectives(collected, swept),
    }


def base_of(header: dict[str, Any]) -> int:
    """Nanoseconds since 1970 that the file's times count from."""
    base = header.get("baseTimeNanoseconds", 0)
    return base if type(base) is int and 0 <= base < 1 << 62 else 0


def known_header(header: dict[str, Any]) -> dict[str, Any]:
    """What the views use of the header, each of its type."""
    ours = _object(header.get("tenon"))
    torchs = _object(header.get("distributedInfo"))
    machine = _object(ours.get("machine"))
    clock = _object(ours.get("clock"))
    peaks = {k: machine[k] for k in ("flops_per_second", "bytes_per_second") if _number(machine.get(k))}
    return {
        "rank": _whole(ours.get("rank"), _whole(torchs.get("rank"), -1)),
        "world_size": _whole(ours.get("world_size"), _whole(torchs.get("world_size"), 1)),
        "host": _text(ours.get("host")) or _text(header.get("host_name")),
        "cycle": _whole(ours.get("cycle"), 0),
        "device": _text(machine.get("device")),
        "threads": _whole(machine.get("threads"), 0),
        "aligned": clock.get("aligned") is True,
        "clock_error": _whole(clock.get("error_ns"), 0),
        **peaks,
    }


def _object(value: Any) -> dict[str, Any]:
    return value if type(value) is dict else {}


def _text(value: Any) -> str:
    return value[:100] if type(value) is str else ""


def _whole(value: Any, otherwise: int) -> int:
    return value if type(value) is int and abs(value) < 1 << 53 else otherwise


def _number(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < 1e30


def _count(value: Any) -> int:
    return round(value) if type(value) in (int, float) and 0 <= value < 1 << 62 else 0


def shapes(detail: dict[str, Any]) -> str:
    """Input shapes as people write them: ``64x64, 32x64``."""
    dims = detail.get("Input Dims")
    if type(dims) is not list:
        return ""
    return ", ".join("x".join(map(str, d)) or "1" if type(d) is list else str(d) for d in dims)[:200]


Cells = list[tuple[tuple[str, str], dict[str, Any], list[int]]]


def operators(cells: Cells) -> list[list[Any]]:
    """[name, shapes, phase, calls, total, self, FLOPs, bytes], the longest self time first."""
    rows: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0] * 5)
    for (category, name), detail, (calls, total, own) in cells:
        if category == "cpu_op" and not name.startswith("enumerate(DataLoader)#"):
            row = rows[name, shapes(detail), _text(detail.get("Phase"))]
            flops, size = _count(detail.get("FLOPs")), _count(detail.get("Bytes"))
            for i, value in enumerate((calls, total, own, calls * flops, calls * size)):
                row[i] += value
    return top(([*key, *row] for key, row in rows.items()), 5)


def modules(cells: Cells, collected: Collected) -> list[list[Any]]:
    """[path, class, calls, inside of calls, own forward, own backward, own FLOPs, own bytes], by path.

    "Inside of calls" is the time of the module's forward and all that it calls. Own times are the self times
    of its ops without those of its children: all that is known of a module in a compiled program.
    """
    rows: dict[str, list[Any]] = defaultdict(lambda: ["", 0, 0, 0, 0, 0, 0])
    for (category, name), detail, (calls, total, own) in cells:
        path = _text(detail.get("Module"))
        if not path:
            continue
        if category == "python_function" and name.startswith("nn.Module: "):
            rows[path][0] = name[11:].rpartition("_")[0]
            rows[path][1] += calls
            rows[path][2] += total
        elif category == "cpu_op":
            rows[path][5] += calls * _count(detail.get("FLOPs"))
            if detail.get("Phase") in ("forward", "backward"):
                rows[path][3 if detail["Phase"] == "forward" else 4] += own
    size, owner = _column(collected.memory.size), _column(collected.memory.detail)
    allocated = np.bincount(owner[size > 0], size[size > 0])
    for kind in np.flatnonzero(allocated).tolist():
        if path := _text(collected.details[kind].get("Module")):
            rows[path][6] += int(allocated[kind])
    kept = sorted(rows.items(), key=lambda row: sum(row[1][2:5]), reverse=True)[:MOST_ROWS]
    return [[path, *row] for path, row in sorted(kept)]


def _column(values: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.frombuffer(values, np.int64) if len(values) else np.zeros(0, np.int64)


def memory(collected: Collected) -> dict[str, Any]:
    """Per device: the curve, its peak, and what was alive at the peak, by owner."""
    known = np.array([_column(column) for column in collected.memory.columns()])
    columns = known[:, np.argsort(known[0], kind="stable")]
    found: dict[str, Any] = {}
    for index, device in enumerate(collected.memory.devices):
        found[device] = _device_memory(columns[:, columns[3] == index], collected)
    return found


def _device_memory(columns: Any, collected: Collected) -> Any:
    at, change, address, _, allocated, reserved, detail = columns
    peak = int(np.argmax(allocated))
    # What an address did last before the peak was passed: where it was allocated, it is alive.
    _, last = np.unique(address[: peak + 1][::-1], return_index=True)
    last = peak - last
    alive = last[change[last] > 0]
    owners: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for size, index in zip(change[alive].tolist(), detail[alive].tolist(), strict=True):
        said = collected.details[index]
        row = owners[_text(said.get("Module")), _text(said.get("Op")), _text(said.get("Phase"))]
        row[0] += size
        row[1] += 1
    found = collected.details[detail[0]].get("Op") == "[found]"
    return {
        "curve": curve(at, allocated, reserved),
        "peak": int(allocated[peak]),
        "peak_at": int(at[peak]),
        "start": int(allocated[0] - (change[0] if change[0] > 0 and not found else 0)),
        "end": int(allocated[-1]),
        "changes": len(at),
        "owners": top(([*key, *row] for key, row in owners.items()), 3)[:100],
    }


def curve(at: Any, allocated: Any, reserved: Any) -> list[tuple[int, int, int]]:
    """Points [moment, allocated, reserved], not many: the highest and the last of each stretch."""
    kept = np.arange(len(at))
    if len(at) > CURVE_POINTS:
        width = max(1, int(at[-1] - at[0]) // (CURVE_POINTS // 2) + 1)
        first = np.flatnonzero(np.diff((at - at[0]) // width, prepend=-1))
        ends = np.append(first[1:], len(at))
        pairs = [(b + int(np.argmax(allocated[b:e])), e - 1) for b, e in zip(first, ends, strict=True)]
        kept = np.unique(pairs)
    return list(zip(*(column[kept].tolist() for column in (at, allocated, reserved)), strict=True))


def kernels(cells: Cells) -> list[list[Any]]:
    """[kind, name, sources, where, calls, total, grid, block, occupancy, FLOPs, bytes], longest first."""
    rows: dict[tuple[Any, ...], list[Any]] = defaultdict(lambda: [0, 0, 0.0, 0, 0])
    for (category, name), detail, (calls, total, _) in cells:
        if category == "kernel":
            where = f"cuda:{_whole(detail.get('device'), 0)}"
            key = ("gpu", name, "", where, _sizes(detail.get("grid")), _sizes(detail.get("block")))
        elif category == "cpu_op" and detail.get("Kernel") == 1:
            source = detail.get("Source ops")
            ops = made_of([*map(_text, source)]) if type(source) is list else ""
            key = ("fused" if ", " in ops else "op", name, ops, _text(detail.get("Source")), "", "")
        elif category == "cpu_op" and type(detail.get("Program")) is str:
            key = ("program", _text(detail["Program"]), "", "", "", "")
        else:
            continue
        row = rows[key]
        occupancy: Any = detail.get("est. achieved occupancy %")
        row[0] += calls
        row[1] += total
        row[2] += calls * occupancy if _number(occupancy) else 0.0
        row[3] += calls * _count(detail.get("FLOPs"))
        row[4] += calls * _count(detail.get("Bytes"))
    return top(([*k[:4], r[0], r[1], k[4], k[5], r[2] / r[0], r[3], r[4]] for k, r in rows.items()), 5)


def made_of(ops: list[str]) -> str:
    """The ops of a kernel: in their order where they are few, else how often each."""
    counted = [f"{op} ×{times}" if times > 1 else op for op, times in Counter(ops).items()]
    return ", ".join(ops if len(ops) <= 8 else counted)[:300]


def _sizes(value: Any) -> str:
    return "x".join(str(_whole(part, 0)) for part in value[:3]) if type(value) is list else ""


def collectives(collected: Collected, swept: Swept) -> list[list[Any]]:
    """[name, group, ranks in it, number, start, duration, wait, transfer, bytes] of each call, in order of
    time; an unknown group is "", of 0 ranks.
    """
    wanted = np.array(
        [
            kind == "user_annotation" and name.startswith(COLLECTIVE_PREFIXES)
            for kind, name in collected.labels
        ]
    )
    rows: list[list[Any]] = []
    for levels in swept.levels.values() if wanted.any() else ():
        for level in levels:
            for i in np.flatnonzero(wanted[np.asarray(level.label)]).tolist():
                said = collected.details[level.detail[i]]
                wait, transfer = _microseconds(said.get("Wait us")), _microseconds(said.get("Transfer us"))
                name = collected.labels[level.label[i]][1].partition(":")[2]
                number, size = _whole(said.get("Number"), len(rows)), _count(said.get("Bytes"))
                when = (int(level.start[i]), int(level.duration[i]))
                rows.append([name, *_group(said), number, *when, wait, transfer, size])
    rows.sort(key=lambda row: row[4])
    return rows[:MOST_COLLECTIVES]


def _group(said: dict[str, Any]) -> tuple[str, int]:
    """The group of ranks that meet, and how many they are."""
    name, ranks = said.get("Group"), said.get("Ranks")
    return (name[:300], len(ranks)) if type(name) is str and type(ranks) is list else ("", 0)


def _microseconds(value: Any) -> int:
    return round(value * 1000) if _number(value) and value < 1e13 else 0


def top(rows: Iterable[list[Any]], column: int) -> list[list[Any]]:
    """The ``MOST_ROWS`` rows with the largest numbers in a column, largest first."""
    return sorted(rows, key=lambda row: row[column], reverse=True)[:MOST_ROWS]
