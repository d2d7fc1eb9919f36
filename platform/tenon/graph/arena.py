"""Assign offsets in one arena to blocks of bytes with known lifetimes.

Two blocks whose lifetimes do not overlap may share bytes. Optimal packing is NP-hard; three greedy orders are
tried (largest first, longest lifetime first, earliest first), each block in the smallest gap that holds it,
and the smallest arena is used. The lower bound is the largest number of bytes that are alive at one time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

#: Alignment of every block in bytes: a cache line, and the widest vector register.
ALIGNMENT = 64


class Lifetime:
    """A block that is needed from step ``first`` to step ``last``, both included; ``offset`` is the
    result."""

    __slots__ = ("first", "last", "nbytes", "offset")

    def __init__(self, nbytes: int, first: int, last: int) -> None:
        self.nbytes, self.first, self.last, self.offset = nbytes, first, last, 0


def aligned(nbytes: int) -> int:
    """Return ``nbytes`` rounded up to the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


_ORDERS: tuple[Callable[[Lifetime], tuple[int, int]], ...] = (
    lambda b: (-b.nbytes, b.first),
    lambda b: (b.first - b.last, -b.nbytes),
    lambda b: (b.first, -b.nbytes),
)


def arrange(blocks: Sequence[Lifetime]) -> int:
    """Set the offset of every block; return the size of the arena."""
    best, offsets = -1, [0] * len(blocks)
    bound = aligned_bound(blocks)
    for order in _ORDERS:
        total, candidate = _greedy(blocks, order)
        if best < 0 or total < best:
            best, offsets = total, candidate
        if best <= bound:
            break
    for block, offset in zip(blocks, offsets, strict=True):
        block.offset = offset
    return max(best, 0)


def _greedy(
    blocks: Sequence[Lifetime], order: Callable[[Lifetime], tuple[int, int]]
) -> tuple[int, list[int]]:
    """Place the blocks one by one in ``order``; return the size of the arena, and the offsets."""
    count = len(blocks)
    sequence = sorted(range(count), key=lambda i: order(blocks[i]))
    firsts, lasts, starts, stops = (np.zeros(count, np.int64) for _ in range(4))
    offsets, total = [0] * count, 0
    for placed, index in enumerate(sequence):
        block = blocks[index]
        size = aligned(block.nbytes)
        alive = (firsts[:placed] <= block.last) & (lasts[:placed] >= block.first)
        offset = _tightest(starts[:placed][alive], stops[:placed][alive], size)
        firsts[placed], lasts[placed] = block.first, block.last
        starts[placed], stops[placed] = offset, offset + size
        offsets[index] = offset
        total = max(total, offset + size)
    return total, offsets


def _tightest(starts: np.ndarray, stops: np.ndarray, size: int) -> int:
    """Return the start of the smallest gap between intervals that holds ``size`` bytes, else their end."""
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


def lower_bound(blocks: Sequence[Lifetime]) -> int:
    """Return the largest number of bytes alive at one time, below which no arena can be."""
    return _most(blocks, lambda n: n)


def aligned_bound(blocks: Sequence[Lifetime]) -> int:
    """Return the lower bound with every block rounded up to the alignment."""
    return _most(blocks, aligned)


def _most(blocks: Sequence[Lifetime], size: Callable[[int], int]) -> int:
    """Return the largest sum of ``size(nbytes)`` over the blocks alive at one time."""
    changes: dict[int, int] = {}
    for block in blocks:
        changes[block.first] = changes.get(block.first, 0) + size(block.nbytes)
        changes[block.last + 1] = changes.get(block.last + 1, 0) - size(block.nbytes)
    most = now = 0
    for time in sorted(changes):
        now += changes[time]
        most = max(most, now)
    return most
