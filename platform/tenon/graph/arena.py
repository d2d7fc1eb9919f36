"""Offsets in one arena for blocks of bytes whose lives are known.

Two blocks whose lives do not overlap may share bytes. Exact packing is hard; three greedy orders are tried
(largest first, longest-lived first, in order of birth), each block at the lowest offset that fits most
tightly, and the smallest arena wins. The lower bound is the most bytes that are alive at one time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

#: Of every block, in bytes: a cache line, and the widest vector register.
ALIGNMENT = 64


class Life:
    """Bytes that are needed from step ``first`` to step ``last``, both included."""

    __slots__ = ("first", "last", "nbytes", "offset")

    def __init__(self, nbytes: int, first: int, last: int) -> None:
        self.nbytes, self.first, self.last, self.offset = nbytes, first, last, 0


def aligned(nbytes: int) -> int:
    """``nbytes`` rounded up to the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


_ORDERS: tuple[Callable[[Life], Any], ...] = (
    lambda b: (-b.nbytes, b.first),
    lambda b: (b.first - b.last, -b.nbytes),
    lambda b: (b.first, -b.nbytes),
)


def arrange(blocks: Sequence[Life]) -> int:
    """Give every block its offset; the bytes that all take together."""
    best, offsets = -1, [0] * len(blocks)
    bound = aligned_bound(blocks)
    for order in _ORDERS:
        total, found = _greedy(blocks, order)
        if best < 0 or total < best:
            best, offsets = total, found
        if best <= bound:
            break
    for block, offset in zip(blocks, offsets, strict=True):
        block.offset = offset
    return max(best, 0)


def _greedy(blocks: Sequence[Life], order: Callable[[Life], Any]) -> tuple[int, list[int]]:
    count = len(blocks)
    turns = sorted(range(count), key=lambda i: order(blocks[i]))
    firsts, lasts, starts, stops = (np.zeros(count, np.int64) for _ in range(4))
    offsets, total = [0] * count, 0
    for placed, index in enumerate(turns):
        block = blocks[index]
        size = aligned(block.nbytes)
        alive = (firsts[:placed] <= block.last) & (lasts[:placed] >= block.first)
        offset = _tightest(starts[:placed][alive], stops[:placed][alive], size)
        firsts[placed], lasts[placed] = block.first, block.last
        starts[placed], stops[placed] = offset, offset + size
        offsets[index] = offset
        total = max(total, offset + size)
    return total, offsets


def _tightest(starts: Any, stops: Any, size: int) -> int:
    """Start of the smallest gap between the given intervals that holds ``size``, else their end."""
    if not len(starts):
        return 0
    order = np.argsort(starts, kind="stable")
    begins, ends = starts[order], np.maximum.accumulate(stops[order])
    before = np.concatenate(([0], ends[:-1]))
    gaps = begins - before
    fitting = np.flatnonzero(gaps >= max(size, 1))
    if len(fitting):
        return int(before[fitting[np.argmin(gaps[fitting])]])
    return int(ends[-1])


def lower_bound(blocks: Sequence[Life]) -> int:
    """The most bytes alive at one time: no arrangement takes less."""
    return _most(blocks, lambda n: n)


def aligned_bound(blocks: Sequence[Life]) -> int:
    """The same, with every block rounded up to the alignment."""
    return _most(blocks, aligned)


def _most(blocks: Sequence[Life], size: Callable[[int], int]) -> int:
    changes: dict[int, int] = {}
    for block in blocks:
        changes[block.first] = changes.get(block.first, 0) + size(block.nbytes)
        changes[block.last + 1] = changes.get(block.last + 1, 0) - size(block.nbytes)
    most = now = 0
    for time in sorted(changes):
        now += changes[time]
        most = max(most, now)
    return most
