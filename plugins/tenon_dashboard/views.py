"""The data of each view, combined from the digests of a run's ranks; nanoseconds and bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from statistics import fmean
from typing import Any

from tenon_dashboard.advice import advice
from tenon_dashboard.collect import JsonObject, Row
from tenon_dashboard.parts import PARTS

#: The digest of each rank, on one clock.
Ranks = Mapping[int, Mapping[str, Any]]


def on_one_clock(ranks: Ranks) -> Ranks:
    """Return each digest with the ``shift`` of its clock from the run's first event, the views' zero."""
    begin = min((digest["origin"] + digest["first"] for digest in ranks.values()), default=0)
    return {rank: {**digest, "shift": digest["origin"] - begin} for rank, digest in ranks.items()}


def overview(ranks: Ranks) -> JsonObject:
    """Return the division of step time: per rank (means over its steps) and per step; and advice."""
    per_rank = []
    for rank, digest in ranks.items():
        steps = digest["steps"]
        columns = list(zip(*steps, strict=True))[2:] if steps else [[0]] * (1 + len(PARTS))
        duration, *parts = map(fmean, columns)
        head = digest["header"]
        about = {"host": head["host"], "device": head["device"], "threads": head["threads"]}
        per_rank.append({"rank": rank, "steps": len(steps), "duration": duration, "parts": parts, **about})
    steps_of = {rank: {step[0]: step for step in digest["steps"]} for rank, digest in ranks.items()}
    numbers = sorted({number for steps in steps_of.values() for number in steps})
    over_steps = []
    for number in numbers:
        by_rank = {rank: steps[number] for rank, steps in steps_of.items() if number in steps}
        durations = {rank: step[2] for rank, step in by_rank.items()}
        slowest = max(durations, key=durations.__getitem__)
        parts = [fmean(step[3 + i] for step in by_rank.values()) for i in range(len(PARTS))]
        row = {"step": number, "duration": fmean(durations.values()), "parts": parts}
        over_steps.append(row | {"slowest": slowest, "longest": durations[slowest]})
    return {
        "parts": PARTS,
        "ranks": per_rank,
        "steps": over_steps,
        "spans": sum(digest["spans"] for digest in ranks.values()),
        "advice": advice(per_rank, over_steps, distributed(ranks), operators(ranks)["rows"]),
    }


def _summed(rows: Iterable[Row], key: Callable[[Row], tuple[Hashable, ...]], first: int) -> Row:
    """Combine rows of equal keys: the columns from ``first`` on are added."""
    sums: dict[tuple[Hashable, ...], Row] = {}
    for row in rows:
        total = sums.get(key(row))
        if total is None:
            sums[key(row)] = [*key(row), *row[first:]]
        else:
            for i, value in enumerate(row[first:], len(total) - len(row) + first):
                total[i] += value
    return list(sums.values())


def operators(ranks: Ranks) -> JsonObject:
    """Return rows [name, shapes, phase, calls, total, self, FLOPs, bytes] over all ranks, and peak rates."""
    rows = _summed(
        (row for digest in ranks.values() for row in digest["operators"]), lambda row: tuple(row[:3]), 3
    )
    heads = [digest["header"] for digest in ranks.values()]
    peaks = {
        name: fmean(known) if (known := [head[name] for head in heads if name in head]) else None
        for name in ("flops_per_second", "bytes_per_second")
    }
    return {"rows": sorted(rows, key=lambda row: (-row[5], -row[4])), **peaks}


def modules(ranks: Ranks) -> JsonObject:
    """Return the module tree, parents first: inclusive times, FLOPs and allocated bytes of all ranks.

    A module that is never called itself, such as a ``ModuleList`` or one in a compiled program, has the
    forward time of its ops and of its children.
    """
    nodes: dict[str, JsonObject] = {}
    for digest in ranks.values():
        for path, kind, calls, called, forward, backward, flops, size in digest["modules"]:
            for parent in _parents(path):
                nodes.setdefault(parent, _node(parent))
            node = nodes[path]
            node["class"] = node["class"] or kind
            node["calls"] += calls
            node["forward"] += called
            node["own_forward"] += forward
            node["own_backward"] += backward
            node["own_flops"] += flops
            node["own_bytes"] += size
    for path in sorted(nodes, key=lambda path: -nodes[path]["depth"]):  # children first
        node = nodes[path]
        for name in ("backward", "flops", "bytes"):
            node[name] += node[f"own_{name}"]
        inside = node.pop("inside")
        if node["calls"] == 0:
            node["forward"] = inside + node["own_forward"]
        node["own_forward"] = max(0, node["forward"] - inside)
        parent_node = nodes.get(path.rpartition(".")[0])
        if parent_node is not None:
            parent_node["inside"] += node["forward"]
            for name in ("backward", "flops", "bytes"):
                parent_node[name] += node[name]
    return {"nodes": [nodes[path] for path in sorted(nodes, key=_natural)]}


def _parents(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[: i + 1]) for i in range(min(len(parts), 60))]


def _natural(path: str) -> list[tuple[int, int, str]]:
    """Return a sort key that puts ``layers.2`` before ``layers.10``."""
    return [
        (0, int(part), "") if part.isascii() and part.isdigit() else (1, 0, part) for part in path.split(".")
    ]


def _node(path: str) -> JsonObject:
    sums = dict.fromkeys(("calls", "forward", "inside", "backward", "flops", "bytes"), 0)
    own = dict.fromkeys(("own_forward", "own_backward", "own_flops", "own_bytes"), 0)
    return {"path": path, "class": "", "depth": path.count("."), **sums, **own}


def memory(ranks: Ranks) -> JsonObject:
    """Return for each rank and device the curve, the peak and the owners of live memory."""
    devices = []
    for rank, digest in ranks.items():
        shift = digest["shift"]
        for device, usage in digest["memory"].items():
            curve = [[at + shift, allocated, reserved] for at, allocated, reserved in usage["curve"]]
            row = {**usage, "rank": rank, "device": device, "curve": curve}
            devices.append(row | {"peak_at": usage["peak_at"] + shift})
    return {"devices": devices}


def kernels(ranks: Ranks) -> JsonObject:
    """Return rows [kind, name, sources, location, grid, block, calls, total, occupancy, FLOPs, bytes]."""
    rows = []
    for digest in ranks.values():
        for kind, name, ops, where, calls, total, grid, block, occupancy, flops, size in digest["kernels"]:
            rows.append([kind, name, ops, where, grid, block, calls, total, occupancy * calls, flops, size])
    summed = _summed(rows, lambda row: tuple(row[:6]), 6)
    for row in summed:
        row[8] = row[8] / row[6] if row[6] else 0.0
    return {"rows": sorted(summed, key=lambda row: -row[7])}


def distributed(ranks: Ranks) -> JsonObject:
    """Return the parts per rank, the sums per collective, and which rank arrives last how often."""
    by_name: dict[str, JsonObject] = {}
    for rank, digest in ranks.items():
        for name, *_, duration, wait, transfer, size in digest["collectives"]:
            row = by_name.setdefault(
                name, {"name": name, "calls": 0, "bytes": 0, "duration": 0, "transfer": 0, "wait": {}}
            )
            row["calls"] += 1
            row["bytes"] += size
            row["duration"] += duration
            row["transfer"] += transfer
            row["wait"][rank] = row["wait"].get(rank, 0) + wait
    heads = [digest["header"] for digest in ranks.values()]
    return {
        "parts": PARTS,
        "ranks": total_parts(ranks),
        "collectives": sorted(by_name.values(), key=lambda row: -row["duration"]),
        "arrivals": arrivals(ranks),
        "world_size": max((head["world_size"] for head in heads), default=1),
        "aligned": all(head["aligned"] for head in heads),
        "clock_error": max((head["clock_error"] for head in heads), default=0),
    }


def total_parts(ranks: Ranks) -> list[JsonObject]:
    """Return for each rank the nanoseconds of each part over all steps."""
    return [
        {"rank": rank, "parts": [sum(step[3 + i] for step in digest["steps"]) for i in range(len(PARTS))]}
        for rank, digest in ranks.items()
    ]


def arrivals(ranks: Ranks) -> list[JsonObject]:
    """Return for each rank in how many collectives it arrived last, and how late after the first on average.

    Counts collectives that all ranks of their group recorded.
    """
    if len(ranks) < 2:
        return []
    calls: dict[tuple[str, str, int, int], dict[int, int]] = defaultdict(dict)
    for rank, digest in ranks.items():
        for name, group, size, number, start, *_ in digest["collectives"]:
            calls[name, group, size or len(ranks), number][rank] = start + digest["origin"]
    common = [starts for (*_, size, _), starts in calls.items() if len(starts) == size > 1]
    late: dict[int, list[int]] = {rank: [] for rank in ranks}
    last = dict.fromkeys(ranks, 0)
    for starts in common:
        first = min(starts.values())
        slowest = max(starts, key=starts.__getitem__)
        last[slowest] += starts[slowest] > first
        for rank, start in starts.items():
            late[rank].append(start - first)
    return [
        {"rank": r, "last": last[r], "late": fmean(late[r]), "calls": len(late[r])} for r in ranks if late[r]
    ]
