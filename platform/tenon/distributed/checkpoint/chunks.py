"""Boxes of tensors: which saved chunks cover what a rank needs, and whether chunks cover a tensor."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from tenon.distributed.checkpoint.metadata import ChunkStorageMetadata
from tenon.tensors.size import Size

#: The position of a chunk in each of two lists.
Pair: TypeAlias = tuple[int, int]
#: Corners of boxes that a check may count.
MOST_CORNERS = 1 << 22


def ends(chunk: ChunkStorageMetadata) -> tuple[int, ...]:
    """Where the box ends on each axis."""
    return tuple(start + size for start, size in zip(chunk.offsets, chunk.sizes, strict=True))


def intersection(first: ChunkStorageMetadata, second: ChunkStorageMetadata) -> tuple[Size, Size, Size] | None:
    """The common box as its offsets in ``first``, its offsets in ``second`` and its shape; None if there is
    none. Tensors without axes have one element, which is common."""
    starts = [max(a, b) for a, b in zip(first.offsets, second.offsets, strict=True)]
    sizes = [min(a, b) - start for a, b, start in zip(ends(first), ends(second), starts, strict=True)]
    if any(size <= 0 for size in sizes):
        return None
    in_first = Size([start - offset for start, offset in zip(starts, first.offsets, strict=True)])
    in_second = Size([start - offset for start, offset in zip(starts, second.offsets, strict=True)])
    return in_first, in_second, Size(sizes)


def overlapping(
    first: Sequence[ChunkStorageMetadata], second: Sequence[ChunkStorageMetadata]
) -> Iterator[Pair]:
    """The pairs of chunks that may have a common box, in order of ``first``: a sweep over the longest
    axis."""
    if not first or not second:
        return
    axes = len(first[0].offsets)
    axis = max(range(axes), key=lambda a: max(ends(c)[a] for c in (*first, *second)), default=None)
    bounds = [
        [(0, 1) if axis is None else (c.offsets[axis], ends(c)[axis]) for c in chunks]
        for chunks in (first, second)
    ]
    waiting = sorted(range(len(second)), key=lambda number: bounds[1][number][0])
    active: list[Pair] = []  # the end of a chunk of ``second``, and its position
    begun = 0
    for number in sorted(range(len(first)), key=lambda n: bounds[0][n][0]):
        start, end = bounds[0][number]
        del active[: bisect_right(active, (start, len(second)))]
        while begun < len(waiting) and bounds[1][waiting[begun]][0] < end:
            insort(active, (bounds[1][waiting[begun]][1], waiting[begun]))
            begun += 1
        yield from sorted((number, other) for _, other in active)


def problem_of(size: Sequence[int], chunks: Sequence[ChunkStorageMetadata]) -> str | None:
    """What is wrong with ``chunks`` as the parts of a tensor of shape ``size``; None if they fill it exactly.

    Boxes fill another one, without overlaps, if the signed sums of their corners are equal: a corner counts
    as -1 if it is an end on an odd number of axes, else as 1. Takes time linear in the number of chunks.

    >>> problem_of([4], [ChunkStorageMetadata(Size([0]), Size([3]))])
    'its chunks overlap or leave gaps: they have 3 elements of 4'
    """
    for chunk in chunks:
        fits = len(chunk.offsets) == len(chunk.sizes) == len(size)
        if not fits or any(
            start < 0 or length < 0 or start + length > whole
            for start, length, whole in zip(chunk.offsets, chunk.sizes, size, strict=True)
        ):
            return f"the chunk {shown(chunk)} is out of bounds of a tensor of {list(size)}"
    boxes = [chunk for chunk in chunks if 0 not in chunk.sizes]
    found, expected = sum(math.prod(chunk.sizes) for chunk in boxes), math.prod(size)
    split = [axis for axis, whole in enumerate(size) if any(box.sizes[axis] != whole for box in boxes)]
    if (len(boxes) << len(split)) > MOST_CORNERS:
        return f"it is split on {len(split)} axes into {len(boxes)} chunks, which are too many to check"
    corners: Counter[tuple[int, ...]] = Counter()
    for box in boxes:
        corners.update(_corners([box.offsets[a] for a in split], [ends(box)[a] for a in split]))
    if expected:
        corners.subtract(_corners([0] * len(split), [size[a] for a in split]))
    if any(corners.values()):
        return f"its chunks overlap or leave gaps: they have {found} elements of {expected}"
    return None


def _corners(starts: list[int], stops: list[int]) -> dict[tuple[int, ...], int]:
    """The corners of a box, each with its sign."""
    signed: dict[tuple[int, ...], int] = {(): 1}
    for start, stop in zip(starts, stops, strict=True):
        signed = {
            (*corner, position): sign * factor
            for corner, sign in signed.items()
            for position, factor in ((start, 1), (stop, -1))
        }
    return signed


def shown(chunk: ChunkStorageMetadata) -> str:
    """A chunk in Python's notation of slices.

    >>> shown(ChunkStorageMetadata(Size([0, 8]), Size([2, 4])))
    '[0:2,8:12]'
    """
    spans = zip(chunk.offsets, ends(chunk), strict=True)
    return f"[{','.join(f'{start}:{end}' for start, end in spans)}]"
