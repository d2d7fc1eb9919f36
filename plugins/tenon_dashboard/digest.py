"""Summarise one trace file for the views: computed once per reading, small enough to cache."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TypeGuard

import numpy as np

from tenon_dashboard.collect import Collected, JsonObject, Row
from tenon_dashboard.parts import COLLECTIVE_PREFIXES, Swept

MOST_ROWS = 5000
MOST_COLLECTIVES = 50_000
MOST_STEPS = 20_000
CURVE_POINTS = 600


def digest(collected: Collected, swept: Swept, header: JsonObject) -> JsonObject:
    """Return the sums of one file as plain data; times in nanoseconds, counted from the file's origin."""
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


def base_of(header: JsonObject) -> int:
    """Return the nanoseconds since 1970 from which the file's times count."""
    base = header.get("baseTimeNanoseconds", 0)
    return base if type(base) is int and 0 <= base < 1 << 62 else 0


def known_header(header: JsonObject) -> JsonObject:
    """Return the parts of the header that the views use, with checked types."""
    ours = _object(header.get("tenon"))
    torchs = _object(header.get("distributedInfo"))
    machine = _object(ours.get("machine"))
    clock = _object(ours.get("clock"))
    peaks = {k: machine[k] for k in ("flops_per_second", "bytes_per_second") if _number(machine.get(k))}
    return {
        "rank": _integer(ours.get("rank"), _integer(torchs.get("rank"), -1)),
        "world_size": _integer(ours.get("world_size"), _integer(torchs.get("world_size"), 1)),
        "host": _text(ours.get("host")) or _text(header.get("host_name")),
        "cycle": _integer(ours.get("cycle"), 0),
        "device": _text(machine.get("device")),
        "threads": _integer(machine.get("threads"), 0),
        "aligned": clock.get("aligned") is True,
        "clock_error": _integer(clock.get("error_ns"), 0),
        **peaks,
    }


def _object(value: object) -> JsonObject:
    return value if type(value) is dict else {}


def _text(value: object) -> str:
    return value[:100] if type(value) is str else ""


def _integer(value: object, otherwise: int) -> int:
    return value if type(value) is int and abs(value) < 1 << 53 else otherwise


def _number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and type(value) is not bool and 0 < value < 1e30


def _count(value: object) -> int:
    return (
        round(value)
        if isinstance(value, (int, float)) and type(value) is not bool and 0 <= value < 1 << 62
        else 0
    )


def shapes(detail: JsonObject) -> str:
    """Return input shapes as text: ``64x64, 32x64``."""
    dims = detail.get("Input Dims")
    if type(dims) is not list:
        return ""
    return ", ".join("x".join(map(str, d)) or "1" if type(d) is list else str(d) for d in dims)[:200]


#: Label, arguments and [calls, total, self] of each distinct span.
Cells = list[tuple[tuple[str, str], JsonObject, list[int]]]


def operators(cells: Cells) -> list[Row]:
    """Return rows [name, shapes, phase, calls, total, self, FLOPs, bytes], the longest self time first."""
    rows: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0] * 5)
    for (category, name), detail, (calls, total, own) in cells:
        if category == "cpu_op" and not name.startswith("enumerate(DataLoader)#"):
            row = rows[name, shapes(detail), _text(detail.get("Phase"))]
            flops, size = _count(detail.get("FLOPs")), _count(detail.get("Bytes"))
            for i, value in enumerate((calls, total, own, calls * flops, calls * size)):
                row[i] += value
    return top(([*key, *row] for key, row in rows.items()), 5)


def modules(cells: Cells, collected: Collected) -> list[Row]:
    """Return rows [path, class, calls, call time, own forward, own backward, own FLOPs, own bytes], by path.

    The call time is that of the module's forward with everything inside. Own times are the self times of its
    ops without those of its children, which is all that is known of a module in a compiled program.
    """
    rows: dict[str, Row] = defaultdict(lambda: ["", 0, 0, 0, 0, 0, 0])
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
    longest = sorted(rows.items(), key=lambda row: sum(row[1][2:5]), reverse=True)[:MOST_ROWS]
    return [[path, *row] for path, row in sorted(longest)]


def _column(values: array[int]) -> np.ndarray:
    return np.frombuffer(values, np.int64) if len(values) else np.zeros(0, np.int64)


def memory(collected: Collected) -> JsonObject:
    """Return for each device the curve, its peak, and the memory live at the peak, by owner."""
    values = np.array([_column(column) for column in collected.memory.columns()])
    columns = values[:, np.argsort(values[0], kind="stable")]
    devices: JsonObject = {}
    for index, device in enumerate(collected.memory.devices):
        devices[device] = _device_memory(columns[:, columns[3] == index], collected)
    return devices


def _device_memory(columns: np.ndarray, collected: Collected) -> JsonObject:
    at, change, address, _, allocated, reserved, detail = columns
    peak = int(np.argmax(allocated))
    # The last event of each address until the peak: memory is live where that is an allocation.
    _, last = np.unique(address[: peak + 1][::-1], return_index=True)
    last = peak - last
    alive = last[change[last] > 0]
    owners: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for size, index in zip(change[alive].tolist(), detail[alive].tolist(), strict=True):
        args = collected.details[index]
        row = owners[_text(args.get("Module")), _text(args.get("Op")), _text(args.get("Phase"))]
        row[0] += size
        row[1] += 1
    existed = collected.details[detail[0]].get("Op") == "[found]"
    return {
        "curve": curve(at, allocated, reserved),
        "peak": int(allocated[peak]),
        "peak_at": int(at[peak]),
        "start": int(allocated[0] - (change[0] if change[0] > 0 and not existed else 0)),
        "end": int(allocated[-1]),
        "changes": len(at),
        "owners": top(([*key, *row] for key, row in owners.items()), 3)[:100],
    }


def curve(at: np.ndarray, allocated: np.ndarray, reserved: np.ndarray) -> list[tuple[int, int, int]]:
    """Return few points (time, allocated, reserved): the highest and the last of each interval."""
    selected = np.arange(len(at))
    if len(at) > CURVE_POINTS:
        width = max(1, int(at[-1] - at[0]) // (CURVE_POINTS // 2) + 1)
        first = np.flatnonzero(np.diff((at - at[0]) // width, prepend=-1))
        ends = np.append(first[1:], len(at))
        pairs = [(b + int(np.argmax(allocated[b:e])), e - 1) for b, e in zip(first, ends, strict=True)]
        selected = np.unique(pairs)
    return list(zip(*(column[selected].tolist() for column in (at, allocated, reserved)), strict=True))


def kernels(cells: Cells) -> list[Row]:
    """Return rows [kind, name, sources, location, calls, total, grid, block, occupancy, FLOPs, bytes]."""
    rows: dict[tuple[str, ...], Row] = defaultdict(lambda: [0, 0, 0.0, 0, 0])
    for (category, name), detail, (calls, total, _) in cells:
        if category == "kernel":
            where = f"cuda:{_integer(detail.get('device'), 0)}"
            key = ("gpu", name, "", where, _sizes(detail.get("grid")), _sizes(detail.get("block")))
        elif category == "cpu_op" and detail.get("Kernel") == 1:
            source = detail.get("Source ops")
            ops = ops_text([*map(_text, source)]) if type(source) is list else ""
            key = ("fused" if ", " in ops else "op", name, ops, _places(detail), "", "")
        elif category == "cpu_op" and type(detail.get("Program")) is str:
            key = ("program", _text(detail["Program"]), "", "", "", "")
        else:
            continue
        row = rows[key]
        occupancy = detail.get("est. achieved occupancy %")
        row[0] += calls
        row[1] += total
        row[2] += calls * occupancy if _number(occupancy) else 0.0
        row[3] += calls * _count(detail.get("FLOPs"))
        row[4] += calls * _count(detail.get("Bytes"))
    return top(([*k[:4], r[0], r[1], k[4], k[5], r[2] / r[0], r[3], r[4]] for k, r in rows.items()), 5)


def _places(detail: JsonObject) -> str:
    """Return where the ops of a kernel ran: its lines, each with the modules whose ops are there."""
    lines, modules = detail.get("Source lines"), detail.get("Source modules")
    if type(lines) is not list or type(modules) is not list:
        return _text(detail.get("Source"))
    modules_by_line: dict[str, dict[str, None]] = {}
    for place, module in zip(map(_text, lines), map(_text, modules), strict=False):
        line = place.rpartition("/")[2]
        modules_by_line.setdefault(line, {}).update({module: None} if module else {})
    shown = (line + (f" ({', '.join(own)})" if own else "") for line, own in modules_by_line.items() if line)
    return ", ".join(shown)[:300]


def ops_text(ops: list[str]) -> str:
    """Return the ops of a kernel as text: in order if they are few, else with their counts."""
    counted = [f"{op} ×{times}" if times > 1 else op for op, times in Counter(ops).items()]
    return ", ".join(ops if len(ops) <= 8 else counted)[:300]


def _sizes(value: object) -> str:
    return "x".join(str(_integer(part, 0)) for part in value[:3]) if isinstance(value, list) else ""


def collectives(collected: Collected, swept: Swept) -> list[Row]:
    """Return a row of each call in order of time; an unknown group is "", of 0 ranks.

    [name, group, ranks in it, number, start, duration, wait, transfer, bytes].
    """
    is_collective = np.array(
        [
            kind == "user_annotation" and name.startswith(COLLECTIVE_PREFIXES)
            for kind, name in collected.labels
        ]
    )
    rows: list[Row] = []
    for levels in swept.levels.values() if is_collective.any() else ():
        for level in levels:
            for i in np.flatnonzero(is_collective[np.asarray(level.label)]).tolist():
                args = collected.details[level.detail[i]]
                wait, transfer = _microseconds(args.get("Wait us")), _microseconds(args.get("Transfer us"))
                name = collected.labels[level.label[i]][1].partition(":")[2]
                number, size = _integer(args.get("Number"), len(rows)), _count(args.get("Bytes"))
                when = (int(level.start[i]), int(level.duration[i]))
                rows.append([name, *_group(args), number, *when, wait, transfer, size])
    rows.sort(key=lambda row: row[4])
    return rows[:MOST_COLLECTIVES]


def _group(args: JsonObject) -> tuple[str, int]:
    """Return the group of the ranks that take part, and their number."""
    name, ranks = args.get("Group"), args.get("Ranks")
    return (name[:300], len(ranks)) if type(name) is str and type(ranks) is list else ("", 0)


def _microseconds(value: object) -> int:
    return round(value * 1000) if _number(value) and value < 1e13 else 0


def top(rows: Iterable[Row], column: int) -> list[Row]:
    """Return the ``MOST_ROWS`` rows with the largest numbers in a column, largest first."""
    return sorted(rows, key=lambda row: row[column], reverse=True)[:MOST_ROWS]
