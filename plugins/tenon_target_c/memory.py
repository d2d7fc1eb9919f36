"""Lay out the memory of a program: an arena for each C type, in which buffers with disjoint lifetimes share
memory.

Offsets are in elements. The largest buffer is placed first, each at the lowest offset that is free during its
lifetime.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon_target_c.program import Program
from tenon_target_c.values import Buffer, Pointer

#: Bytes to which buffers are aligned: a cache line.
ALIGNMENT = 64


def measure_lifetimes(program: Program) -> None:
    """Set the first and last step of each buffer."""
    for position, step in enumerate(program.steps):
        for a in step.args:
            if isinstance(a, Pointer):
                buffer = a.view.buffer
                if buffer.first < 0:
                    buffer.first = position
                buffer.last = position


def lay_out(program: Program) -> dict[str, dict[str, int]]:
    """Set the offsets of all buffers; return the elements of each kind of memory by C type."""
    measure_lifetimes(program)
    sizes: dict[str, dict[str, int]] = {}
    buffers = program.buffers()
    for kind in ("arena", "weight", "state"):
        sizes[kind] = {}
        for ctype in dict.fromkeys(b.ctype for b in buffers if b.kind == kind):
            group = [b for b in buffers if b.kind == kind and b.ctype == ctype]
            unit = max(ALIGNMENT // group[0].memory.itemsize, 1)
            place = _place_by_lifetime if kind == "arena" else _place_in_order
            sizes[kind][ctype] = place(group, unit)
    return sizes


def _place_in_order(buffers: Sequence[Buffer], unit: int) -> int:
    end = 0
    for buffer in buffers:
        buffer.offset = end
        end += -(-buffer.count // unit) * unit
    return end


def _place_by_lifetime(buffers: Sequence[Buffer], unit: int) -> int:
    placed: list[Buffer] = []
    total = 0
    for buffer in sorted(buffers, key=lambda b: (-b.count, b.first)):
        size = -(-buffer.count // unit) * unit
        busy = sorted(
            (o.offset, o.offset + -(-o.count // unit) * unit)
            for o in placed
            if o.first <= buffer.last and o.last >= buffer.first
        )
        start = 0
        for low, high in busy:
            if low - start >= size:
                break
            start = max(start, high)
        buffer.offset = start
        total = max(total, start + size)
        placed.append(buffer)
    return total
