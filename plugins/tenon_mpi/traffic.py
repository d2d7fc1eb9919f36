"""Cost model: the bytes that each transport sends and copies for a call.

``tenon plan`` predicts with it; tests compare it with counted bytes. Figures are sums over the ranks of one
node. Every rank of ``messages`` counts as a node of its own, also where several share one, which gives an
upper bound of what leaves the node.
"""

from __future__ import annotations

import math

import numpy as np

from tenon.extend import engine
from tenon_mpi import messages, shared

WORDS = 16
"""Bytes that the comparison of a call exchanges (``Messages.compare``)."""
SHORT_GATHER_BYTES, LONG_GATHER_BYTES = 80 << 10, 512 << 10
"""Up to the first size MPICH all-gathers by recursive doubling; up to the second if the number of ranks
is a power of two."""


def of_call(transport: str, call: engine.Call, ranks: int, per_node: int, overlapped: bool) -> engine.Traffic:
    """The traffic of one node; ``overlapped``: by the progress thread, which sleeps between polls."""
    if transport == "shared":
        return _in_memory(call, ranks)
    nodes = ranks // per_node if transport == "hierarchical" else ranks
    doubling = math.ceil(math.log2(nodes)) if nodes > 1 else 0
    traffic = engine.Traffic(sent=WORDS * doubling, rounds=doubling)
    calls = 1
    if call.kind == "all_reduce" and transport == "hierarchical":
        count = math.prod(call.shape)
        bounds = [shared.slice_bounds(rank, per_node, count) for rank in range(per_node)]
        wide = engine.accumulator(np.dtype(call.dtype)).itemsize
        slices = [_slice(stop - start, wide, nodes) for start, stop in bounds]
        longest, count = max(slices, key=lambda part: part[0].sent)
        sent, moved = sum(part.sent for part, _ in slices), sum(part.moved for part, _ in slices)
        traffic, calls = traffic + engine.Traffic(sent, longest.rounds, moved), calls + count
    elif call.kind == "all_reduce":
        part, count = _reduction(math.prod(call.shape), np.dtype(call.dtype).itemsize, nodes)
        traffic, calls = traffic + part, calls + count
    else:
        part, count = _movement(call.kind, engine.array_bytes(call), nodes)
        traffic, calls = traffic + part, calls + count
    share = per_node if transport == "messages" else 1
    sleeping = messages.POLL_SECONDS / 2 * calls if overlapped else 0.0
    return engine.Traffic(traffic.sent * share, traffic.rounds, traffic.moved * share, sleeping)


def _slice(count: int, item: int, nodes: int) -> tuple[engine.Traffic, int]:
    """Traffic and MPI calls of all-reducing a rank's slice over the nodes, in blocks."""
    total, calls = engine.Traffic(), 0
    for start, stop in messages.pieces(count, item, shared.INTER_NODE_BYTES):
        traffic, more = _reduction(stop - start, item, nodes)
        total, calls = total + traffic, calls + more
    return total, calls


def _reduction(count: int, item: int, ranks: int) -> tuple[engine.Traffic, int]:
    """Average traffic and number of MPI calls of a rank in ``Messages.all_reduce`` of ``count`` elements."""
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
    """Average traffic and number of MPI calls of a rank in other collectives of ``size`` bytes a rank."""
    calls = -(-size // messages.PIECE_BYTES)
    if kind == "broadcast":
        return engine.Traffic(size, calls * max(1, math.ceil(math.log2(ranks)))), calls
    if kind == "all_gather":
        return engine.Traffic((ranks - 1) * size, calls * _gather_rounds(size * ranks, ranks)), calls
    if kind in ("all_to_all", "reduce_scatter"):
        return engine.Traffic((ranks - 1) * size / ranks, calls, 2 * size), calls
    return engine.Traffic(), 0


def _gather_rounds(gathered: int, ranks: int) -> int:
    """Rounds of MPICH's all-gather: recursive doubling for few bytes, a ring for many."""
    doubling = gathered <= SHORT_GATHER_BYTES or (gathered <= LONG_GATHER_BYTES and ranks & (ranks - 1) == 0)
    return math.ceil(math.log2(ranks)) if doubling else ranks - 1


def _in_memory(call: engine.Call, ranks: int) -> engine.Traffic:
    """Reads and writes in shared memory; large reductions are assumed to be in a window, as gradients are."""
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
