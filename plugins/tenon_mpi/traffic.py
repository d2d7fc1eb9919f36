"""What each engine sends and moves for a call: ``tenon plan`` predicts with it, tests count beside it.

Sums over the ranks of one node. Every rank of ``messages`` counts as a node of its own, also where several
share one: what they send then is the most that can leave it.
"""

from __future__ import annotations

import math

import numpy as np

from tenon.extend import engine
from tenon_mpi import messages, shared

WORDS = 32
"""Bytes by which the ranks compare a call (``Messages.compare``)."""
FEW, MORE = 80 << 10, 512 << 10
"""Up to so many gathered bytes MPICH doubles what it passes on; up to the second for powers of two."""


def of_call(way: str, call: engine.Call, ranks: int, per_node: int, beside: bool) -> engine.Traffic:
    """The traffic of one node; ``beside``: by the progress thread, which sleeps between looks."""
    if way == "shared":
        return _in_memory(call, ranks)
    nodes = ranks // per_node if way == "hierarchical" else ranks
    doubling = math.ceil(math.log2(nodes)) if nodes > 1 else 0
    found = engine.Traffic(sent=WORDS * doubling, rounds=doubling)
    calls = 1
    if call.kind == "all_reduce" and way == "hierarchical":
        count = math.prod(call.shape)
        bounds = [shared.slice_bounds(rank, per_node, count) for rank in range(per_node)]
        wide = engine.accumulator(np.dtype(call.dtype)).itemsize
        lanes = [_slice(stop - start, wide, nodes) for start, stop in bounds]
        longest, count = max(lanes, key=lambda lane: lane[0].sent)
        sent, moved = sum(lane.sent for lane, _ in lanes), sum(lane.moved for lane, _ in lanes)
        found, calls = found + engine.Traffic(sent, longest.rounds, moved), calls + count
    elif call.kind == "all_reduce":
        lane, count = _reduction(math.prod(call.shape), np.dtype(call.dtype).itemsize, nodes)
        found, calls = found + lane, calls + count
    else:
        lane, count = _movement(call.kind, engine.array_bytes(call), nodes)
        found, calls = found + lane, calls + count
    share = per_node if way == "messages" else 1
    paused = messages.PATIENCE / 2 * calls if beside else 0.0
    return engine.Traffic(found.sent * share, found.rounds, found.moved * share, paused)


def _slice(count: int, item: int, nodes: int) -> tuple[engine.Traffic, int]:
    """A rank's slice goes to the other nodes in blocks."""
    total, calls = engine.Traffic(), 0
    for start, stop in messages.pieces(count, item, shared.BETWEEN_BYTES):
        found, more = _reduction(stop - start, item, nodes)
        total, calls = total + found, calls + more
    return total, calls


def _reduction(count: int, item: int, ranks: int) -> tuple[engine.Traffic, int]:
    """What ``Messages.all_reduce`` of ``count`` elements costs a rank, on average, and its calls of MPI."""
    total, calls = engine.Traffic(), 0
    for start, stop in messages.pieces(count, item):
        size = (stop - start) * item
        gather = _gather_rounds(size, ranks)
        if ranks == 2 or size <= messages.WHOLE_BYTES:
            every = size * ranks
            total += engine.Traffic((ranks - 1) * size, _gather_rounds(every, ranks), every + size)
            calls += 1
        else:
            total += engine.Traffic(2 * (ranks - 1) * size / ranks, 1 + gather, size + 2 * size / ranks)
            calls += 2
    return total, calls


def _movement(kind: str, size: int, ranks: int) -> tuple[engine.Traffic, int]:
    """What the other collectives of ``size`` bytes a rank cost it, on average, and their calls of MPI."""
    calls = -(-size // messages.PIECE_BYTES)
    if kind == "broadcast":
        return engine.Traffic(size, calls * max(1, math.ceil(math.log2(ranks)))), calls
    if kind == "all_gather":
        return engine.Traffic((ranks - 1) * size, calls * _gather_rounds(size * ranks, ranks)), calls
    if kind in ("all_to_all", "reduce_scatter"):
        return engine.Traffic((ranks - 1) * size / ranks, calls, 2 * size), calls
    return engine.Traffic(), 0


def _gather_rounds(gathered: int, ranks: int) -> int:
    """Steps of MPICH's all-gather: doubling for little, a ring for much."""
    few = gathered <= FEW or (gathered <= MORE and ranks & (ranks - 1) == 0)
    return math.ceil(math.log2(ranks)) if few else ranks - 1


def _in_memory(call: engine.Call, ranks: int) -> engine.Traffic:
    """Reads and writes in shared memory; large sums lie in a window, as gradients do."""
    size = engine.array_bytes(call)
    moved = {
        "all_reduce": 2 * ranks if size > shared.WHOLE_BYTES else ranks * (ranks + 3),
        "broadcast": 2 * ranks,
        "all_gather": 2 * ranks * (ranks + 1),
        "reduce_scatter": 3 * ranks + 1,
        "all_to_all": 4 * ranks,
    }
    return engine.Traffic(moved=float(moved.get(call.kind, 0) * size))


__all__ = ["of_call"]
